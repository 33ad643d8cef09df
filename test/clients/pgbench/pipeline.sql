-- A transfer whose statements are sent before the first answer is read.
\set from random(1, 100000 * :scale)
\set to random(1, 100000 * :scale)
\startpipeline
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance - 1 WHERE aid = least(:from::int, :to::int);
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = greatest(:from::int, :to::int);
SELECT abalance FROM pgbench_accounts WHERE aid = :from;
COMMIT;
\endpipeline
