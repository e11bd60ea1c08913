"""Run by alembic: works on the one connection that `db.upgrade` hands over, inside its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
