-- What the first schema version looked like, with two sessions in it. Never changed: it must open for ever.
CREATE TABLE blob_uses (
    session bigint NOT NULL,
    blob text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE blobs (
    id text NOT NULL COLLATE pg_catalog."C",
    content bytea NOT NULL
);
CREATE TABLE leases (
    session text NOT NULL COLLATE pg_catalog."C",
    token text NOT NULL,
    holder text NOT NULL,
    expires timestamp with time zone NOT NULL
);
CREATE TABLE records (
    session bigint NOT NULL,
    "position" integer NOT NULL,
    kind text NOT NULL,
    packed smallint NOT NULL,
    body text NOT NULL
);
CREATE TABLE sessions (
    number bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    title text DEFAULT ''::text NOT NULL,
    preview text DEFAULT ''::text NOT NULL,
    forked_from text DEFAULT ''::text NOT NULL,
    version integer DEFAULT 0 NOT NULL,
    view_start integer DEFAULT 0 NOT NULL,
    created timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
ALTER TABLE sessions ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sessions_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE trilane_schema (
    version integer NOT NULL
);
INSERT INTO blob_uses VALUES (1, '39061532d423f2d385027b9d40fc07e2bedf7bf3151e8f8bdd5ff005cd5136d1');
INSERT INTO blob_uses VALUES (2, '39061532d423f2d385027b9d40fc07e2bedf7bf3151e8f8bdd5ff005cd5136d1');
INSERT INTO blobs VALUES ('39061532d423f2d385027b9d40fc07e2bedf7bf3151e8f8bdd5ff005cd5136d1', convert_to(repeat('x', 16385), 'UTF8'));
INSERT INTO records VALUES (1, 1, 'message', 0, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"system","id":"s1","text":"Be brief."}}');
INSERT INTO records VALUES (1, 2, 'message', 0, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"user","id":"u1","parts":[{"kind":"text","text":"Päivää 🚢  ","extra":null},{"kind":"image","media_type":"image/png","data":"aGk=","url":"","extra":{"x":[1]}}],"origin":"request"}}');
INSERT INTO records VALUES (1, 3, 'message', 0, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"assistant","id":"a1","parts":[{"kind":"reasoning","text":"Hm.","signature":"sig","extra":null},{"kind":"text","text":"Looking.","extra":null},{"kind":"tool_call","call":{"id":"c1","name":"look","arguments":{"where":"the \"north\"\n","n":1.5,"deep":[{"a":null}]},"raw":"{}","approval":{"approve":true,"arguments":{"where":"south"},"reason":"closer"}},"extra":null}],"stop_reason":"tool_calls","usage":{"input_tokens":3,"output_tokens":4,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost":0.25},"model":"scripted","interrupted":false,"extra":{"id":"resp_1"}}}');
INSERT INTO records VALUES (1, 4, 'question', 0, '{"kind":"question","version":1,"run_id":"r1","question":{"id":"q1","kind":"question","prompt":"Go on?","schema":{"type":"string"},"call":{"id":"c1","name":"t","arguments":{},"raw":"","approval":null},"asked_by":"","session_id":"","path":[],"expires":null},"ordinal":2}');
INSERT INTO records VALUES (1, 5, 'question_closed', 0, '{"kind":"question_closed","version":1,"run_id":"r1","question_id":"q1","status":"accepted","payload":{"answer":[true,null]}}');
INSERT INTO records VALUES (1, 6, 'call_started', 0, '{"kind":"call_started","version":1,"run_id":"r1","message_id":"a1","call_id":"c1","key":"k","arguments_hash":"h","effect":"read","attempt":2}');
INSERT INTO records VALUES (1, 7, 'call_finished', 0, '{"kind":"call_finished","version":1,"run_id":"r1","message_id":"a1","result":{"call_id":"c1","content":["a ship",{"kind":"file","media_type":"application/octet-stream","name":"log.txt","data":"aGk=","url":"","extra":null}],"outcome":"ok","data":{"ships":[1,2]}}}');
INSERT INTO records VALUES (1, 8, 'message_hidden', 0, '{"kind":"message_hidden","version":1,"run_id":"r1","message_id":"a1","reason":"not accepted"}');
INSERT INTO records VALUES (1, 9, 'view_replaced', 0, '{"kind":"view_replaced","version":1,"run_id":"r1","messages":[{"kind":"user","id":"u1","parts":[{"kind":"text","text":"Päivää 🚢  ","extra":null},{"kind":"image","media_type":"image/png","data":"aGk=","url":"","extra":{"x":[1]}}],"origin":"request"},{"kind":"tool","id":"t1","results":[{"call_id":"c1","content":["a ship",{"kind":"file","media_type":"application/octet-stream","name":"log.txt","data":"aGk=","url":"","extra":null}],"outcome":"ok","data":{"ships":[1,2]}}]}],"reason":"shorter","undoes":false}');
INSERT INTO records VALUES (1, 10, 'run_ended', 0, '{"kind":"run_ended","version":1,"run_id":"r1","status":"suspended","usage":{"input_tokens":3,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost":null},"turns":1}');
INSERT INTO records VALUES (1, 11, 'newer', 0, '{"kind":"mood","run_id":"r","mood":"good"}');
INSERT INTO records VALUES (1, 12, 'message', 1, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"user","id":"large","parts":[{"kind":"text","text":{"$trilane-text":"39061532d423f2d385027b9d40fc07e2bedf7bf3151e8f8bdd5ff005cd5136d1"},"extra":null}],"origin":"request"}}');
INSERT INTO records VALUES (2, 1, 'message', 0, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"system","id":"s1","text":"Be brief."}}');
INSERT INTO records VALUES (2, 2, 'message', 0, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"user","id":"u1","parts":[{"kind":"text","text":"Päivää 🚢  ","extra":null},{"kind":"image","media_type":"image/png","data":"aGk=","url":"","extra":{"x":[1]}}],"origin":"request"}}');
INSERT INTO records VALUES (2, 3, 'message', 0, '{"kind":"message","version":1,"run_id":"r1","message":{"kind":"assistant","id":"a1","parts":[{"kind":"reasoning","text":"Hm.","signature":"sig","extra":null},{"kind":"text","text":"Looking.","extra":null},{"kind":"tool_call","call":{"id":"c1","name":"look","arguments":{"where":"the \"north\"\n","n":1.5,"deep":[{"a":null}]},"raw":"{}","approval":{"approve":true,"arguments":{"where":"south"},"reason":"closer"}},"extra":null}],"stop_reason":"tool_calls","usage":{"input_tokens":3,"output_tokens":4,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0,"cost":0.25},"model":"scripted","interrupted":false,"extra":{"id":"resp_1"}}}');
INSERT INTO records VALUES (2, 4, 'question', 0, '{"kind":"question","version":1,"run_id":"r1","question":{"id":"q1","kind":"question","prompt":"Go on?","schema":{"type":"string"},"call":{"id":"c1","name":"t","arguments":{},"raw":"","approval":null},"asked_by":"","session_id":"","path":[],"expires":null},"ordinal":2}');
INSERT INTO records VALUES (2, 5, 'question_closed', 0, '{"kind":"question_closed","version":1,"run_id":"r1","question_id":"q1","status":"accepted","payload":{"answer":[true,null]}}');
INSERT INTO sessions OVERRIDING SYSTEM VALUE VALUES (1, 'old', 'Päivää', 'Päivää 🚢', '', 12, 8, '2026-12-01 00:24:52.816185+00', '2026-12-01 00:24:53.029284+00');
INSERT INTO sessions OVERRIDING SYSTEM VALUE VALUES (2, 'branch', '', 'Päivää 🚢', 'old', 5, 0, '2026-12-01 00:24:53.032644+00', '2026-12-01 00:24:53.032644+00');
INSERT INTO trilane_schema VALUES (1);
SELECT pg_catalog.setval('sessions_number_seq', 2, true);
ALTER TABLE ONLY blob_uses
    ADD CONSTRAINT blob_uses_pkey PRIMARY KEY (session, blob);
ALTER TABLE ONLY blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (session);
ALTER TABLE ONLY records
    ADD CONSTRAINT records_pkey PRIMARY KEY (session, "position");
ALTER TABLE ONLY sessions
    ADD CONSTRAINT sessions_id_key UNIQUE (id);
ALTER TABLE ONLY sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (number);
CREATE INDEX blob_users ON blob_uses USING btree (blob);
CREATE INDEX sessions_by_time ON sessions USING btree (updated, number);
ALTER TABLE ONLY blob_uses
    ADD CONSTRAINT blob_uses_blob_fkey FOREIGN KEY (blob) REFERENCES blobs(id);
ALTER TABLE ONLY blob_uses
    ADD CONSTRAINT blob_uses_session_fkey FOREIGN KEY (session) REFERENCES sessions(number);
