import type pg from 'pg';
import { renameServerFunction } from './rename-server-function.ts';

/** The functions that are replaced. */
export const CHOSEN_LARGE_OBJECTS: readonly string[] = ['lo_create', 'lo_from_bytea'];

/**
 * All organizations in a shared database share the ids of large objects. An organization that could choose ids could create those
 * that another is about to restore, grant access to all, and receive the other's data.
 */
export async function refuseChosenLargeObjects(session: pg.Client): Promise<void> {
  await renameServerFunction(session, 'lo_create', 'oid');
  await renameServerFunction(session, 'lo_from_bytea', 'oid, bytea');
  await session.query(CREATE + FROM_BYTEA);
}

/** SECURITY INVOKER, so that the caller becomes the owner. */
const REFUSE = `IF $1 OPERATOR(pg_catalog.<>) 0::pg_catalog.oid THEN
    RAISE insufficient_privilege USING MESSAGE = 'the id of a large object cannot be chosen in a shared database',
      HINT = 'Use 0: the server chooses one.';
  END IF`;

const CREATE = `
CREATE OR REPLACE FUNCTION pg_catalog.lo_create(oid) RETURNS oid LANGUAGE plpgsql STRICT AS $$
BEGIN
  ${REFUSE};
  RETURN pg_catalog.lo_creat(-1);
END $$;`;

const FROM_BYTEA = `
CREATE OR REPLACE FUNCTION pg_catalog.lo_from_bytea(oid, bytea) RETURNS oid LANGUAGE plpgsql STRICT AS $$
DECLARE
  created pg_catalog.oid;
BEGIN
  ${REFUSE};
  created := pg_catalog.lo_creat(-1);
  PERFORM pg_catalog.lo_put(created, 0, $2);
  RETURN created;
END $$;`;
