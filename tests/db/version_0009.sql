BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0009');
CREATE TABLE batch_lines (
	id INTEGER NOT NULL, 
	batch_id VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	author VARCHAR NOT NULL, 
	text VARCHAR, 
	ended INTEGER, 
	verdict_id INTEGER, 
	message VARCHAR, 
	PRIMARY KEY (id), 
	FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);
CREATE TABLE batches (
	id VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	idempotency_key VARCHAR, 
	digest VARCHAR NOT NULL, 
	priority INTEGER NOT NULL, 
	created_at VARCHAR NOT NULL, ended_at VARCHAR, 
	PRIMARY KEY (id), 
	UNIQUE (owner, idempotency_key)
);
CREATE TABLE cancels (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	author VARCHAR, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES graders (run_id) ON DELETE CASCADE
);
CREATE TABLE claims (
	"key" VARCHAR NOT NULL, 
	run_id INTEGER NOT NULL, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(run_id) REFERENCES graders (run_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
CREATE TABLE environments (
	hash VARCHAR NOT NULL, 
	device VARCHAR NOT NULL, 
	device_name VARCHAR NOT NULL, 
	document VARCHAR NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "environments" VALUES('e1395b8cbafcb1df6e429f09ef3f6ebbe21cc3e4f5e9ba115b1a72dc79a14f56','cpu','a CPU','{"device":"cpu","device_name":"a CPU","torch_version":"2.13.0","cuda_version":null,"driver_version":null,"compiler":"g++ 12.2.0","python_version":"3.11.7","grader_version":"0.1.0","sandbox":"bubblewrap","sandbox_layers":["namespaces","seccomp"],"thread_count":null}');
CREATE TABLE graders (
	run_id INTEGER NOT NULL, 
	machine VARCHAR NOT NULL, 
	process INTEGER NOT NULL, 
	process_started INTEGER NOT NULL, 
	seen_at VARCHAR NOT NULL, priority INTEGER DEFAULT '0' NOT NULL, status VARCHAR, 
	PRIMARY KEY (run_id), 
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
CREATE TABLE problems (
	hash VARCHAR NOT NULL, 
	problem VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	text VARCHAR NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "problems" VALUES('49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5','scale','/problems/scale.py','import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [8]
');
CREATE TABLE profiles (
	id INTEGER NOT NULL, 
	source_hash VARCHAR NOT NULL, 
	problem_hash VARCHAR NOT NULL, 
	device_name VARCHAR NOT NULL, 
	precision VARCHAR NOT NULL, 
	created_at VARCHAR NOT NULL, 
	document VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	arguments VARCHAR NOT NULL, 
	grader_version VARCHAR NOT NULL, 
	started_at VARCHAR NOT NULL, 
	finished_at VARCHAR, 
	outcome VARCHAR, 
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES(1,'["grade", "submissions"]','0.1.0','2026-11-21T09:33:56.929555+00:00','2026-11-21T09:33:56.967438+00:00','finished');
INSERT INTO "runs" VALUES(2,'["grade", "submissions"]','0.1.0','2026-11-21T23:25:51.789582+00:00','2026-11-21T23:25:51.810382+00:00','finished');
CREATE TABLE sources (
	hash VARCHAR NOT NULL, 
	text VARCHAR NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "sources" VALUES('d2d24c4f4d2de2440004f16444dfd102d3c8b7fe35448f80d1de8684d8ef273f','from torch import nn


class ModelNew(nn.Module):
    pass
');
INSERT INTO "sources" VALUES('8369080354365b49c3cbedbbdaed878276d72cca646ac442552c2217e95cddd7','class ModelNew: ...
');
INSERT INTO "sources" VALUES('5c0176e616c22df519ae13e2a35a69179abbb74fcaacc05567d436c36a4e3a2a','class ModelNew: pass
');
CREATE TABLE standings (
	id INTEGER NOT NULL, 
	problem VARCHAR NOT NULL, 
	problem_hash VARCHAR NOT NULL, 
	device_name VARCHAR NOT NULL, 
	author VARCHAR NOT NULL, 
	label VARCHAR, 
	strict_fp32 BOOLEAN NOT NULL, 
	device VARCHAR NOT NULL, 
	samples INTEGER NOT NULL, 
	right_total INTEGER NOT NULL, 
	right_forward INTEGER NOT NULL, 
	total_id INTEGER, 
	forward_id INTEGER, 
	newest_id INTEGER NOT NULL, precision VARCHAR DEFAULT 'fp32' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(problem_hash) REFERENCES problems (hash)
);
INSERT INTO "standings" VALUES(2,'scale','49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5','a CPU','bob',NULL,0,'cpu',1,0,1,NULL,2,2,'fp32');
INSERT INTO "standings" VALUES(3,'scale','49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5','a CPU','ann','v2',0,'cpu',2,2,2,1,1,3,'fp32');
CREATE TABLE standings_by_labels (
	standing_id INTEGER NOT NULL, 
	labels VARCHAR NOT NULL, 
	samples INTEGER NOT NULL, 
	right_total INTEGER NOT NULL, 
	right_forward INTEGER NOT NULL, 
	total_id INTEGER, 
	total_place INTEGER, 
	forward_id INTEGER, 
	forward_place INTEGER, 
	PRIMARY KEY (standing_id, labels), 
	FOREIGN KEY(standing_id) REFERENCES standings (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "standings_by_labels" VALUES(2,'[]',1,0,1,NULL,NULL,2,1);
INSERT INTO "standings_by_labels" VALUES(3,'["reduced_precision"]',1,1,1,3,2,3,2);
INSERT INTO "standings_by_labels" VALUES(3,'[]',1,1,1,1,1,1,1);
CREATE TABLE submissions (
	id INTEGER NOT NULL, 
	author VARCHAR NOT NULL, 
	problem VARCHAR NOT NULL, 
	label VARCHAR, 
	sample INTEGER, 
	source_hash VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(source_hash) REFERENCES sources (hash), 
	UNIQUE (author, problem, label, sample, source_hash)
);
INSERT INTO "submissions" VALUES(1,'ann','scale','v2',NULL,'d2d24c4f4d2de2440004f16444dfd102d3c8b7fe35448f80d1de8684d8ef273f','submissions/ann/scale.py');
INSERT INTO "submissions" VALUES(2,'bob','scale',NULL,NULL,'8369080354365b49c3cbedbbdaed878276d72cca646ac442552c2217e95cddd7','submissions/bob/scale.py');
INSERT INTO "submissions" VALUES(3,'ann','scale','v2',0,'5c0176e616c22df519ae13e2a35a69179abbb74fcaacc05567d436c36a4e3a2a','submissions/ann/scale.py');
CREATE TABLE verdicts (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	submission_id INTEGER NOT NULL, 
	problem VARCHAR NOT NULL, 
	author VARCHAR NOT NULL, 
	label VARCHAR, 
	sample INTEGER, 
	device VARCHAR NOT NULL, 
	variant VARCHAR, 
	quick BOOLEAN NOT NULL, 
	sandbox VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	forward_status VARCHAR, 
	backward_status VARCHAR, 
	total_speedup FLOAT, 
	total_ci_low FLOAT, 
	forward_speedup FLOAT, 
	forward_ci_low FLOAT, 
	source_hash VARCHAR NOT NULL, 
	problem_hash VARCHAR NOT NULL, 
	environment_hash VARCHAR NOT NULL, 
	settings_hash VARCHAR NOT NULL, 
	created_at VARCHAR NOT NULL, 
	document VARCHAR NOT NULL, strict_fp32 BOOLEAN DEFAULT 0 NOT NULL, labels VARCHAR DEFAULT '[]' NOT NULL, total_ci_high FLOAT, total_bound_speedup FLOAT, forward_ci_high FLOAT, forward_bound_speedup FLOAT, precision VARCHAR DEFAULT 'fp32' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(environment_hash) REFERENCES environments (hash), 
	FOREIGN KEY(problem_hash) REFERENCES problems (hash), 
	FOREIGN KEY(run_id) REFERENCES runs (id), 
	FOREIGN KEY(source_hash) REFERENCES sources (hash), 
	FOREIGN KEY(submission_id) REFERENCES submissions (id)
);
INSERT INTO "verdicts" VALUES(1,1,1,'scale','ann','v2',NULL,'cpu',NULL,0,'bubblewrap','correct','passed','passed',2.0,1.8,3.0,2.7,'d2d24c4f4d2de2440004f16444dfd102d3c8b7fe35448f80d1de8684d8ef273f','49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5','e1395b8cbafcb1df6e429f09ef3f6ebbe21cc3e4f5e9ba115b1a72dc79a14f56','0d25836c4effc076a1902bfc85ed8db9c83affebfb959d2cdc37e01ca2feeb8f','2026-01-01T12:00:00.000000+00:00','{"schema_version":1,"submission":"ann/scale__v2","author":"ann","label":"v2","sample":null,"problem":"scale","device":"cpu","status":"correct","diagnoses":[],"labels":[],"build":{"status":"passed","seconds":1.5,"cached":false,"log_tail":"[1/2] c++ main.o\n[2/2] c++ main.so","extensions":[]},"forward":{"status":"passed","variants":[],"max_abs_error":null,"rel_rms_error":null,"passes_1e_4":null,"passes_1e_2":null,"seconds":null},"backward":{"status":"passed","gradients":[{"name":"x","status":"passed","shape":null,"dtype":null,"max_abs_error":null,"rel_rms_error":1e-7,"baseline_rel_rms_error":null,"worst_index":null,"worst_candidate":null,"worst_reference":null,"passes_1e_4":null,"passes_1e_2":null,"message":null},{"name":"weight","status":"passed","shape":null,"dtype":null,"max_abs_error":null,"rel_rms_error":2e-7,"baseline_rel_rms_error":null,"worst_index":[3],"worst_candidate":null,"worst_reference":null,"passes_1e_4":null,"passes_1e_2":null,"message":null}],"variants":[],"experiments":[],"seconds":null},"timing":{"status":"passed","variant":"full","forward":{"candidate_ms":1.0,"reference_ms":3.0,"speedup":3.0,"ci_low":2.7,"ci_high":3.333333333333333,"bound_ms":null,"verdict":"inconclusive","rounds":8,"candidate_samples_ms":[],"reference_samples_ms":[],"clock":"worker"},"backward":null,"total":{"candidate_ms":1.0,"reference_ms":2.0,"speedup":2.0,"ci_low":1.8,"ci_high":2.2222222222222223,"bound_ms":null,"verdict":"inconclusive","rounds":8,"candidate_samples_ms":[],"reference_samples_ms":[],"clock":"worker"}},"seconds":{"build":0.0,"start":0.0,"forward":0.0,"backward":0.0,"timing":0.0},"peak_device_bytes":null,"environment":{"device":"cpu","device_name":"a CPU","torch_version":"2.13.0","cuda_version":null,"driver_version":null,"compiler":"g++ 12.2.0","python_version":"3.11.7","grader_version":"0.1.0","sandbox":"bubblewrap","sandbox_layers":["namespaces","seccomp"],"thread_count":null},"settings":{"device":"cpu","variant":null,"quick":false,"sandbox":"auto"},"source_hash":"d2d24c4f4d2de2440004f16444dfd102d3c8b7fe35448f80d1de8684d8ef273f","problem_hash":"49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5","created_at":"2026-01-01T12:00:00Z"}',0,'[]',2.2222222222222223209e+00,NULL,3.33333333333333303727e+00,NULL,'fp32');
INSERT INTO "verdicts" VALUES(2,1,2,'scale','bob',NULL,NULL,'cpu',NULL,0,'bubblewrap','missing_backward','passed','failed',NULL,NULL,3.0,2.7,'8369080354365b49c3cbedbbdaed878276d72cca646ac442552c2217e95cddd7','49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5','e1395b8cbafcb1df6e429f09ef3f6ebbe21cc3e4f5e9ba115b1a72dc79a14f56','0d25836c4effc076a1902bfc85ed8db9c83affebfb959d2cdc37e01ca2feeb8f','2026-01-01T12:00:00.000000+00:00','{"schema_version":1,"submission":"bob/scale","author":"bob","label":null,"sample":null,"problem":"scale","device":"cpu","status":"missing_backward","diagnoses":[{"code":"output_wrong","stage":"forward","message":"The output is wrong; look at index (0, 3).","severity":"error","detail":{}}],"labels":[],"build":{"status":"passed","seconds":1.5,"cached":false,"log_tail":"[1/2] c++ main.o\n[2/2] c++ main.so","extensions":[]},"forward":{"status":"passed","variants":[],"max_abs_error":null,"rel_rms_error":null,"passes_1e_4":null,"passes_1e_2":null,"seconds":null},"backward":{"status":"failed","gradients":[{"name":"x","status":"passed","shape":null,"dtype":null,"max_abs_error":null,"rel_rms_error":1e-7,"baseline_rel_rms_error":null,"worst_index":null,"worst_candidate":null,"worst_reference":null,"passes_1e_4":null,"passes_1e_2":null,"message":null},{"name":"weight","status":"missing","shape":null,"dtype":null,"max_abs_error":null,"rel_rms_error":null,"baseline_rel_rms_error":null,"worst_index":null,"worst_candidate":null,"worst_reference":null,"passes_1e_4":null,"passes_1e_2":null,"message":"autograd gave no gradient for it"}],"variants":[],"experiments":[],"seconds":null},"timing":{"status":"passed","variant":"full","forward":{"candidate_ms":1.0,"reference_ms":3.0,"speedup":3.0,"ci_low":2.7,"ci_high":3.333333333333333,"bound_ms":null,"verdict":"inconclusive","rounds":8,"candidate_samples_ms":[],"reference_samples_ms":[],"clock":"worker"},"backward":null,"total":null},"seconds":{"build":0.0,"start":0.0,"forward":0.0,"backward":0.0,"timing":0.0},"peak_device_bytes":null,"environment":{"device":"cpu","device_name":"a CPU","torch_version":"2.13.0","cuda_version":null,"driver_version":null,"compiler":"g++ 12.2.0","python_version":"3.11.7","grader_version":"0.1.0","sandbox":"bubblewrap","sandbox_layers":["namespaces","seccomp"],"thread_count":null},"settings":{"device":"cpu","variant":null,"quick":false,"sandbox":"auto"},"source_hash":"8369080354365b49c3cbedbbdaed878276d72cca646ac442552c2217e95cddd7","problem_hash":"49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5","created_at":"2026-01-01T12:00:00Z"}',0,'[]',NULL,NULL,3.33333333333333303727e+00,NULL,'fp32');
INSERT INTO "verdicts" VALUES(3,2,3,'scale','ann','v2',0,'cpu',NULL,0,'bubblewrap','correct','passed','passed',1.5,1.35,2.5,2.25,'5c0176e616c22df519ae13e2a35a69179abbb74fcaacc05567d436c36a4e3a2a','49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5','e1395b8cbafcb1df6e429f09ef3f6ebbe21cc3e4f5e9ba115b1a72dc79a14f56','a4e1906de8d6269d99dc2d46dc5b546a4031084818f4c573a240e65ed0813710','2026-01-01T12:00:00.000000+00:00','{"schema_version":1,"submission":"ann/scale__v2","author":"ann","label":"v2","sample":0,"problem":"scale","device":"cpu","status":"correct","diagnoses":[],"labels":["reduced_precision"],"kernels":[],"build":{"status":"passed","seconds":1.5,"cached":false,"log_tail":"[1/2] c++ main.o\n[2/2] c++ main.so","extensions":[]},"forward":{"status":"passed","variants":[],"max_abs_error":null,"rel_rms_error":null,"passes_1e_4":null,"passes_1e_2":null,"seconds":null},"backward":{"status":"passed","gradients":[{"name":"x","status":"passed","shape":null,"dtype":null,"max_abs_error":null,"rel_rms_error":1e-7,"baseline_rel_rms_error":null,"worst_index":null,"worst_candidate":null,"worst_reference":null,"passes_1e_4":null,"passes_1e_2":null,"message":null},{"name":"weight","status":"passed","shape":null,"dtype":null,"max_abs_error":null,"rel_rms_error":2e-7,"baseline_rel_rms_error":null,"worst_index":[3],"worst_candidate":null,"worst_reference":null,"passes_1e_4":null,"passes_1e_2":null,"message":null}],"variants":[],"experiments":[],"peak_device_bytes":null,"seconds":null},"timing":{"status":"passed","variant":"full","forward":{"candidate_ms":1.0,"reference_ms":2.5,"speedup":2.5,"ci_low":2.25,"ci_high":2.7777777777777777,"bound_ms":null,"verdict":"inconclusive","rounds":8,"candidate_samples_ms":[],"reference_samples_ms":[],"clock":"worker"},"backward":null,"total":{"candidate_ms":1.0,"reference_ms":1.5,"speedup":1.5,"ci_low":1.35,"ci_high":1.6666666666666665,"bound_ms":null,"verdict":"inconclusive","rounds":8,"candidate_samples_ms":[],"reference_samples_ms":[],"clock":"worker"},"clocks":[],"baselines":[]},"seconds":{"build":0.0,"start":0.0,"forward":0.0,"backward":0.0,"timing":0.0,"inspection":0.0},"peak_device_bytes":null,"environment":{"device":"cpu","device_name":"a CPU","torch_version":"2.13.0","cuda_version":null,"driver_version":null,"compiler":"g++ 12.2.0","python_version":"3.11.7","grader_version":"0.1.0","sandbox":"bubblewrap","sandbox_layers":["namespaces","seccomp"],"thread_count":null},"settings":{"device":"cpu","variant":null,"quick":false,"sandbox":"auto","strict_fp32":false},"source_hash":"5c0176e616c22df519ae13e2a35a69179abbb74fcaacc05567d436c36a4e3a2a","problem_hash":"49d8267c77b67270a4764f553ab12c947bf569668a584510829c28d2836c85f5","created_at":"2026-01-01T12:00:00Z"}',0,'["reduced_precision"]',1.66666666666666651863e+00,NULL,2.77777777777777767909e+00,NULL,'fp32');
CREATE INDEX ix_problems_problem ON problems (problem);
CREATE INDEX ix_submissions_source_hash ON submissions (source_hash);
CREATE INDEX ix_verdicts_author ON verdicts (author, label, problem);
CREATE INDEX ix_verdicts_board ON verdicts (problem, device, status);
CREATE INDEX ix_verdicts_reuse ON verdicts (source_hash, problem_hash, environment_hash, settings_hash);
CREATE INDEX ix_verdicts_submission_id ON verdicts (submission_id);
CREATE INDEX ix_standings_author ON standings (author, label, problem);
CREATE INDEX ix_standings_newest ON standings (problem, newest_id, problem_hash);
CREATE INDEX ix_claims_run_id ON claims (run_id);
CREATE INDEX ix_verdicts_figures ON verdicts (id, problem, problem_hash, device, author, label, sample, strict_fp32, variant, status, forward_status, quick, sandbox, created_at, labels, source_hash, environment_hash, total_speedup, total_ci_low, total_ci_high, total_bound_speedup, forward_speedup, forward_ci_low, forward_ci_high, forward_bound_speedup, precision);
CREATE INDEX ix_profiles_of ON profiles (source_hash, problem_hash, device_name, precision);
CREATE INDEX ix_batch_lines_ended ON batch_lines (batch_id, ended);
CREATE INDEX ix_batch_lines_waiting ON batch_lines (ended, author);
COMMIT;
