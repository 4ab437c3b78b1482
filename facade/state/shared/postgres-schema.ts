/**
 * The tables and functions in Postgres, one list of statements per version. Each operation on budgets or values is one
 * call of a function, so it is atomic and takes one round trip. All windows are by the clock of the server.
 */

/** `SCHEMA` stands for the namespace. Version n is made from n - 1 by `POSTGRES_UPGRADES[n - 1]`. */
export const POSTGRES_UPGRADES: readonly string[] = [
  `
CREATE TABLE SCHEMA.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL, seq bigint NOT NULL, floor bigint NOT NULL,
  -- When a process was heard again after none had been: since then, the others had little time to be heard.
  resumed bigint NOT NULL);
INSERT INTO SCHEMA.meta VALUES (true, 0, 0, 0, 0);

-- A removed value stays as NULL, so that copies hear of it.
CREATE TABLE SCHEMA.value (
  space text NOT NULL, key text NOT NULL, value text, seq bigint NOT NULL, PRIMARY KEY (space, key));
CREATE INDEX value_seq ON SCHEMA.value (seq);

-- The amounts are calls, argBytes, outputBytes, wallMs. A counter with touched = 0 is only a lock.
CREATE TABLE SCHEMA.counter (
  scope text NOT NULL, key text NOT NULL, budget text NOT NULL, since bigint NOT NULL, touched bigint NOT NULL,
  amounts bigint[] NOT NULL, PRIMARY KEY (scope, key, budget)) WITH (fillfactor = 50);
CREATE INDEX counter_touched ON SCHEMA.counter (touched) WHERE scope IN ('run', 'session');

CREATE TABLE SCHEMA.slot (
  scope text NOT NULL, key text NOT NULL, budget text NOT NULL, lease text NOT NULL, process text NOT NULL,
  PRIMARY KEY (scope, key, budget, lease));
CREATE INDEX slot_process ON SCHEMA.slot (process);

CREATE TABLE SCHEMA.process (mark text PRIMARY KEY, seen bigint NOT NULL);

CREATE FUNCTION SCHEMA.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
  $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

CREATE FUNCTION SCHEMA.reserve(
  claims jsonb, ahead_most bigint, ahead_held numeric, lease_id text, mark_id text, lease_ms bigint, return_ms bigint)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  n int := jsonb_array_length(claims);
  i int; j int; u int;
  c jsonb; d jsonb;
  r SCHEMA.counter;
  now_is bigint;
  starts bigint; amounts_now bigint[]; limit_is numeric; left_is numeric; used int;
  further bigint := ahead_most;
  share numeric;
  took bigint[];
  before jsonb := '[]';
  taken jsonb := '[]';
BEGIN
  -- In one order, so that two reservations cannot wait for each other.
  INSERT INTO SCHEMA.counter
    SELECT DISTINCT a->>'s', a->>'k', a->>'b', SCHEMA.now_ms(), 0, '{0,0,0,0}'::bigint[]
    FROM jsonb_array_elements(claims) a ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING;
  PERFORM 1 FROM SCHEMA.counter k JOIN jsonb_array_elements(claims) a
    ON k.scope = a->>'s' AND k.key = a->>'k' AND k.budget = a->>'b' ORDER BY k.scope, k.key, k.budget FOR UPDATE OF k;
  now_is := SCHEMA.now_ms();
  FOR i IN 0 .. n - 1 LOOP
    c := claims->i;
    SELECT * INTO r FROM SCHEMA.counter k WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b';
    -- The scope has just ended. The caller tries again.
    IF NOT FOUND THEN RAISE EXCEPTION 'counter removed' USING ERRCODE = 'serialization_failure'; END IF;
    starts := r.since; amounts_now := r.amounts;
    IF r.touched = 0 THEN
      starts := now_is; amounts_now := '{0,0,0,0}';
    ELSIF c ? 'w' THEN
      -- A clock that was set back begins the window again, and keeps what was spent.
      IF now_is < starts THEN starts := now_is;
      ELSIF now_is - starts >= (c->>'w')::numeric THEN starts := now_is; amounts_now := '{0,0,0,0}';
      END IF;
    END IF;
    took := '{0,0,0,0}';
    FOR j IN 0 .. jsonb_array_length(c->'d') - 1 LOOP
      d := c->'d'->j; u := (d->>0)::int + 1; limit_is := (d->>1)::numeric;
      left_is := greatest(0, limit_is - amounts_now[u]);
      IF left_is < (d->>3)::numeric THEN
        -- The new window is stored, so that it does not begin again at each refusal.
        IF r.touched > 0 AND starts <> r.since THEN
          UPDATE SCHEMA.counter k SET since = starts, amounts = amounts_now, touched = now_is
            WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b';
        END IF;
        RETURN jsonb_build_object('now', now_is, 'refused', jsonb_build_array(i, u - 1, left_is, starts));
      END IF;
      took[u] := least((d->>2)::numeric, left_is);
      IF (d->>2)::numeric > 0 AND ahead_most > 0 THEN
        share := floor((limit_is - amounts_now[u] - (d->>2)::numeric) / 64 / (d->>2)::numeric);
        further := greatest(0, least(further, share - ahead_held));
      END IF;
    END LOOP;
    before := before || jsonb_build_array(jsonb_build_array(starts, to_jsonb(amounts_now), to_jsonb(took)));
  END LOOP;
  FOR i IN 0 .. n - 1 LOOP
    c := claims->i;
    CONTINUE WHEN NOT c ? 'c';
    SELECT count(*) INTO used FROM SCHEMA.slot k WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b';
    IF used >= (c->>'c')::numeric THEN
      -- Whether the holders are alive is asked only if the budget is full.
      DELETE FROM SCHEMA.slot k WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b'
        AND NOT EXISTS (SELECT 1 FROM SCHEMA.process p WHERE p.mark = k.process AND p.seen > now_is - lease_ms)
        AND NOT EXISTS (SELECT 1 FROM SCHEMA.meta m WHERE m.resumed > now_is - return_ms);
      SELECT count(*) INTO used FROM SCHEMA.slot k WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b';
      IF used >= (c->>'c')::numeric THEN
        RETURN jsonb_build_object('now', now_is, 'refused', jsonb_build_array(i, 4, 0, (before->i->>0)::bigint));
      END IF;
    END IF;
  END LOOP;
  FOR i IN 0 .. n - 1 LOOP
    c := claims->i; starts := (before->i->>0)::bigint;
    FOR u IN 1 .. 4 LOOP
      amounts_now[u] := (before->i->1->>(u - 1))::bigint;
      took[u] := (before->i->2->>(u - 1))::bigint * (1 + further);
    END LOOP;
    IF took <> '{0,0,0,0}' THEN
      UPDATE SCHEMA.counter k SET since = starts, touched = now_is, amounts = ARRAY[amounts_now[1] + took[1],
          amounts_now[2] + took[2], amounts_now[3] + took[3], amounts_now[4] + took[4]]
        WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b';
    END IF;
    IF c ? 'c' THEN
      INSERT INTO SCHEMA.slot VALUES (c->>'s', c->>'k', c->>'b', lease_id, mark_id);
    END IF;
    taken := taken || jsonb_build_array(jsonb_build_array(starts) || to_jsonb(took));
  END LOOP;
  RETURN jsonb_build_object('now', now_is, 'taken', taken);
END $$;

CREATE FUNCTION SCHEMA.settle(changes jsonb, lease_id text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  c jsonb;
BEGIN
  FOR c IN SELECT a FROM jsonb_array_elements(changes) a ORDER BY a->>'s', a->>'k', a->>'b' LOOP
    IF c ? 'a' THEN
      UPDATE SCHEMA.counter k SET amounts = ARRAY[k.amounts[1] + (c->'a'->>0)::bigint,
          k.amounts[2] + (c->'a'->>1)::bigint, k.amounts[3] + (c->'a'->>2)::bigint, k.amounts[4] + (c->'a'->>3)::bigint]
        WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b' AND k.since = (c->>'t')::bigint;
    END IF;
    IF c ? 'c' THEN
      DELETE FROM SCHEMA.slot k
        WHERE k.scope = c->>'s' AND k.key = c->>'k' AND k.budget = c->>'b' AND k.lease = lease_id;
    END IF;
  END LOOP;
END $$;

CREATE FUNCTION SCHEMA.changes(from_seq bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  m SCHEMA.meta;
  is_all boolean;
  list jsonb;
BEGIN
  SELECT * INTO m FROM SCHEMA.meta;
  -- A restored store has smaller numbers.
  is_all := from_seq IS NULL OR from_seq < m.floor OR from_seq > m.seq;
  SELECT coalesce(jsonb_agg(jsonb_build_array(v.space, v.key, v.value)), '[]') INTO list FROM SCHEMA.value v
    WHERE CASE WHEN is_all THEN v.value IS NOT NULL ELSE v.seq > from_seq END;
  RETURN jsonb_build_object('version', m.version, 'to', m.seq, 'all', is_all, 'changes', list);
END $$;

-- op: put, remove, take, swap. only_value: what a take or swap expects; NULL for a take of anything.
CREATE FUNCTION SCHEMA.write(
  op text, in_space text, in_key text, only_value text, to_value text, from_seq bigint, keep bigint)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  next_seq bigint;
  found_value text;
  result text;
  cut bigint;
BEGIN
  -- The row lock makes writes one after the other, so that no change appears after one with a larger number.
  UPDATE SCHEMA.meta SET seq = seq + 1 RETURNING seq INTO next_seq;
  SELECT v.value INTO found_value FROM SCHEMA.value v WHERE v.space = in_space AND v.key = in_key;
  IF op = 'put' OR (op = 'swap' AND found_value IS NOT DISTINCT FROM only_value) THEN
    INSERT INTO SCHEMA.value VALUES (in_space, in_key, to_value, next_seq)
      ON CONFLICT (space, key) DO UPDATE SET value = to_value, seq = next_seq;
    result := '1';
  ELSIF op IN ('remove', 'take') AND found_value IS NOT NULL AND (only_value IS NULL OR found_value = only_value) THEN
    UPDATE SCHEMA.value v SET value = NULL, seq = next_seq WHERE v.space = in_space AND v.key = in_key;
    result := found_value;
  END IF;
  IF next_seq % keep = 0 THEN
    cut := next_seq - keep;
    DELETE FROM SCHEMA.value v WHERE v.value IS NULL AND v.seq <= cut;
    UPDATE SCHEMA.meta SET floor = cut;
  END IF;
  IF result IS NOT NULL THEN PERFORM pg_notify('NAMESPACE_news', ''); END IF;
  RETURN jsonb_build_object('result', result, 'news', SCHEMA.changes(from_seq));
END $$;

CREATE FUNCTION SCHEMA.news(from_seq bigint, mark_id text, lease_ms bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  now_is bigint := SCHEMA.now_ms();
  answer jsonb;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM SCHEMA.process p WHERE p.seen > now_is - lease_ms / 2) THEN
    UPDATE SCHEMA.meta SET resumed = now_is;
  END IF;
  -- A write only a few times in each lease.
  IF mark_id <> '' THEN
    INSERT INTO SCHEMA.process AS p VALUES (mark_id, now_is) ON CONFLICT (mark) DO UPDATE SET seen = now_is
      WHERE abs(now_is - p.seen) > lease_ms / 5;
  END IF;
  -- The processes are read after the values, so that they have the writer of each value.
  answer := SCHEMA.changes(from_seq);
  RETURN answer || jsonb_build_object('now', now_is, 'resumed', (SELECT resumed FROM SCHEMA.meta), 'alive', (
    SELECT coalesce(jsonb_agg(p.mark), '[]') FROM SCHEMA.process p WHERE p.seen > now_is - lease_ms));
END $$;

CREATE FUNCTION SCHEMA.clean(lease_ms bigint, stale_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  now_is bigint := SCHEMA.now_ms();
BEGIN
  DELETE FROM SCHEMA.counter WHERE scope IN ('run', 'session') AND greatest(touched, since) < now_is - stale_ms;
  DELETE FROM SCHEMA.slot s WHERE NOT EXISTS (SELECT 1 FROM SCHEMA.process p
    WHERE p.mark = s.process AND p.seen > now_is - lease_ms)
    AND NOT EXISTS (SELECT 1 FROM SCHEMA.meta m WHERE m.resumed > now_is - lease_ms);
  DELETE FROM SCHEMA.process WHERE seen < now_is - 10 * lease_ms;
END $$;
`,
];
