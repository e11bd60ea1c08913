"""The order in which a queue serves priorities and authors."""

from grader.pool.fair import FairQueue


def filled(*items):
    queue = FairQueue()
    for author, number, priority in items:
        queue.put((author, number), author, priority)
    return queue


def drained(queue):
    found = []
    while (item := queue.take()) is not None:
        found.append("{}{}".format(*item))
    return found


def test_authors_take_turns_and_each_is_served_in_its_order():
    queue = filled(*(("ann", number, 0) for number in range(4)), ("bob", 0, 0), ("cid", 0, 0), ("bob", 1, 0))
    assert drained(queue) == ["ann0", "bob0", "cid0", "ann1", "bob1", "ann2", "ann3"]
    assert (len(queue), queue.take()) == (0, None)


def test_a_flood_delays_another_author_by_one_item():
    queue = filled(*(("ann", number, 0) for number in range(10_000)))
    assert [queue.take() for _ in range(3)] == [("ann", 0), ("ann", 1), ("ann", 2)]
    queue.put(("bob", 0), "bob")
    assert ("bob", 0) in (queue.take(), queue.take())
    assert len(queue) == 9_996


def test_a_higher_priority_goes_first():
    assert drained(filled(("ann", 0, 0), ("ann", 1, 5), ("bob", 0, -1), ("bob", 1, 5))) == [
        "ann1",
        "bob1",
        "ann0",
        "bob0",
    ]


def test_what_is_put_back_is_next():
    queue = filled(("ann", 0, 0), ("bob", 0, 0), ("ann", 1, 0))
    taken = queue.take()
    queue.put_back(taken, "ann")
    assert drained(queue) == ["ann0", "bob0", "ann1"]


def test_an_item_that_does_not_suit_waits_for_its_next_turn():
    queue = filled(("ann", 0, 0), ("ann", 1, 0), ("bob", 0, 0))
    assert queue.take(lambda item: item != ("ann", 0)) == ("ann", 1)
    assert queue.take(lambda _: False) is None
    assert sorted(queue) == [("ann", 0), ("bob", 0)]


def test_removed_items_are_gone():
    queue = filled(("ann", 0, 0), ("bob", 0, 1), ("ann", 1, 1))
    assert sorted(queue.remove(lambda item: item[0] == "ann")) == [("ann", 0), ("ann", 1)]
    assert (len(queue), drained(queue)) == (1, ["bob0"])
