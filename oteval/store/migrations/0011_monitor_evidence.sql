-- What an episode shows, gathered when it begins: usual runs from before the change, and figures
-- with intervals and slices, as JSON without ids.
ALTER TABLE monitor_episodes ADD COLUMN IF NOT EXISTS runs_before VARCHAR[];
ALTER TABLE monitor_episodes ADD COLUMN IF NOT EXISTS evidence VARCHAR;

-- The number of the last score or run from before this migration. Those up to it are not read again,
-- because their conversations are noted by another hash.
ALTER TABLE monitors ADD COLUMN first_seq BIGINT;

-- When a check first found that a monitor is not in the configuration any more (ns); and the file of
-- the configuration that had it last.
ALTER TABLE monitors ADD COLUMN missing_ns BIGINT;
ALTER TABLE monitors ADD COLUMN configuration VARCHAR;

-- DuckDB 1.5 cannot alter a table again after its rows were changed in the same transaction.
UPDATE monitor_episodes SET runs_before = [] WHERE runs_before IS NULL;
UPDATE monitors SET first_seq = position;
