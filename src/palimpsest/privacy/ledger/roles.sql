-- Three roles for a ledger on PostgreSQL, as its superuser or the owner of its tables runs it, again after an upgrade.
--   palimpsest_owner    registers data sets, sets caps, strikes faulty entries; the tables are its own.
--   palimpsest_analyst  reserves, begins, advances, answers, commits and refunds. It adds entries and changes none.
--   palimpsest_auditor  reads.
-- Make a person a member: GRANT palimpsest_analyst TO alice;

DO $$
DECLARE role_name text;
BEGIN
  FOREACH role_name IN ARRAY ARRAY['palimpsest_owner', 'palimpsest_analyst', 'palimpsest_auditor'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
    END IF;
  END LOOP;
END $$;

ALTER TABLE palimpsest_asset OWNER TO palimpsest_owner;
ALTER TABLE palimpsest_entry OWNER TO palimpsest_owner;
ALTER TABLE palimpsest_answer OWNER TO palimpsest_owner;
ALTER TABLE palimpsest_version OWNER TO palimpsest_owner;
GRANT USAGE, CREATE ON SCHEMA public TO palimpsest_owner;
GRANT USAGE ON SCHEMA public TO palimpsest_analyst, palimpsest_auditor;

REVOKE ALL ON palimpsest_asset, palimpsest_entry, palimpsest_answer, palimpsest_version
  FROM PUBLIC, palimpsest_analyst, palimpsest_auditor;
GRANT SELECT ON palimpsest_asset, palimpsest_entry, palimpsest_version TO palimpsest_analyst, palimpsest_auditor;
GRANT INSERT ON palimpsest_entry TO palimpsest_analyst;
-- Answers stay, so that rows can be made again from them; the chain has their hashes. An auditor needs none.
GRANT SELECT, INSERT ON palimpsest_answer TO palimpsest_analyst;

-- Which entries an analyst may add: those of charges, and what a run knows a data set's rows again by. Terms, caps, the
-- word for rows of another data set, and the strike of a faulty entry are the owner's.
ALTER TABLE palimpsest_entry ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS palimpsest_reads ON palimpsest_entry;
DROP POLICY IF EXISTS palimpsest_charges ON palimpsest_entry;
CREATE POLICY palimpsest_reads ON palimpsest_entry FOR SELECT TO palimpsest_analyst, palimpsest_auditor USING (true);
CREATE POLICY palimpsest_charges ON palimpsest_entry FOR INSERT TO palimpsest_analyst WITH CHECK (
  kind IN ('reserve', 'begin', 'advance', 'answer', 'commit', 'refund')
  OR (kind = 'rows' AND NOT body::jsonb ? 'word')
);
