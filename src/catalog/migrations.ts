import { createHash } from 'node:crypto';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { ControlPool, Sql } from './control-pool.ts';

/** One step of the control database's schema. A released step is never changed: the database records a checksum of its SQL. */
interface CatalogMigration {
  readonly name: string;
  /** Statements with qualified names, because the search path is empty. */
  readonly sql: string;
}

/** In the order in which they are applied. New ones are added at the end. */
export const CATALOG_MIGRATIONS: readonly CatalogMigration[] = [
  {
    name: '001 organizations and keys',
    sql: `
      create table postern.organizations (
        id text primary key,
        name text not null,
        email text not null,
        -- The address in lower case, made by the service: what lower() does depends on the database's locale.
        email_key text not null,
        status text not null check (status in ('provisioning', 'active', 'suspended', 'dropping', 'dropped')),
        -- Counts every change of status or key: tells which of two reads is the newer one.
        revision integer not null default 1,
        -- The process that is signing it up; its session holds an advisory lock on this number while it lives.
        provisioner integer not null,
        placement jsonb not null,
        created_at timestamptz(3) not null
      );
      create unique index organizations_email on postern.organizations (email_key) where status <> 'dropped';
      create index organizations_provisioning on postern.organizations (created_at) where status = 'provisioning';

      create table postern.api_keys (
        id text primary key,
        organization_id text not null references postern.organizations on delete cascade,
        prefix text not null,
        digest bytea not null unique,
        scram_iterations integer not null,
        scram_salt bytea not null,
        scram_stored_key bytea not null,
        scram_server_key bytea not null,
        created_at timestamptz(3) not null,
        last_used_at timestamptz(3),
        revoked_at timestamptz(3)
      );
      create unique index api_keys_live on postern.api_keys (organization_id) where revoked_at is null;
      create index api_keys_organization on postern.api_keys (organization_id);
    `,
  },
  {
    name: '002 signup attempts',
    sql: `
      create table postern.signup_attempts (
        address text not null,
        attempted_at timestamptz(3) not null
      );
      create index signup_attempts_address on postern.signup_attempts (address, attempted_at);
    `,
  },
  {
    name: '003 audit',
    sql: `
      create table postern.audit_heads (
        organization_id text primary key references postern.organizations on delete cascade,
        seq bigint not null,
        hash bytea not null,
        -- The last entry that retention has deleted (0 and the chain's first prevHash while there is none).
        kept_after_seq bigint not null,
        kept_after_hash bytea not null
      );

      -- No reference to the head: its row is locked by whoever writes entries, and the check would cost each of them.
      create table postern.audit_entries (
        organization_id text not null,
        seq bigint not null,
        id text not null,
        occurred_at timestamptz(3) not null,
        action text not null,
        surface text not null,
        key_id text,
        key_prefix text,
        source_ip text,
        user_agent text,
        application_name text,
        request_id text,
        statement jsonb,
        session jsonb,
        outcome jsonb not null,
        prev_hash bytea not null,
        hash bytea not null,
        primary key (organization_id, seq)
      );
      -- Ids grow with time. A batch whose COMMIT was not answered is looked up here before it is written again.
      create unique index audit_entries_id on postern.audit_entries (id);
      create index audit_entries_request on postern.audit_entries (organization_id, request_id) where request_id is not null;
    `,
  },
  {
    name: '004 no index of audit ids',
    sql: `
      -- A batch whose COMMIT was not answered is looked up by the places it was given: the primary key is enough.
      drop index postern.audit_entries_id;
    `,
  },
  {
    name: '005 audit as json',
    sql: `
      -- Written far more often than it is read, and hashed as it was written.
      alter table postern.audit_entries
        alter column statement type json,
        alter column session type json,
        alter column outcome type json;
    `,
  },
  {
    name: '006 audit in blocks',
    sql: `
      -- A process of an earlier version may be writing still: what it commits is waited for, and then it can write no more.
      lock table postern.audit_entries in access exclusive mode;

      create table postern.audit_blocks (
        organization_id text not null,
        first_seq bigint not null,
        prev_hash bytea not null,
        -- Of the last entry, from which the next block goes on.
        seq bigint not null,
        hash bytea not null,
        -- Of the earliest entry and the latest.
        first_at timestamptz(3) not null,
        last_at timestamptz(3) not null,
        -- Which request ids occur in it; null: nobody knows.
        request_filter bytea,
        -- A line of JSON for each.
        entries text not null,
        primary key (organization_id, seq)
      );
      -- To compress them would cost more than to write them.
      alter table postern.audit_blocks alter column entries set storage external;

      insert into postern.audit_blocks (organization_id, first_seq, prev_hash, seq, hash, first_at, last_at, entries)
      select
        organization_id, min(seq), (array_agg(prev_hash order by seq))[1], max(seq), (array_agg(hash order by seq desc))[1],
        min(occurred_at), max(occurred_at),
        -- Somebody may have broken lines within an entry's json.
        string_agg(replace(json_build_array(
          encode(hash, 'hex'), seq, id, to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), action, request_id,
          json_build_object(
            'actor', json_build_object('keyId', key_id, 'keyPrefix', key_prefix), 'applicationName', application_name,
            'sourceIp', source_ip, 'surface', surface, 'userAgent', user_agent),
          statement, session,
          -- Looked for as it is written now.
          replace(outcome::text, '"status": ', '"status":')::json
        )::text, e'\\n', ' '), e'\\n' order by seq)
      from (
        select *, max(occurred_at) over (partition by organization_id order by seq) as latest from postern.audit_entries
      ) as entry
      -- A block is kept for as long as its youngest entry: a day's entries at most are in one.
      group by organization_id, (seq - 1) / 256, date_trunc('day', latest at time zone 'UTC');
      drop table postern.audit_entries;
    `,
  },
  {
    name: '007 invitations',
    sql: `
      create table postern.invitations (
        digest bytea primary key,
        -- As organizations.email_key: the only address that may use it; null: any may.
        email_key text,
        created_at timestamptz(3) not null,
        expires_at timestamptz(3) not null,
        -- Who has used it. A sign-up that is undone gives it back.
        organization_id text references postern.organizations on delete set null
      );
    `,
  },
  {
    name: '008 several keys',
    sql: `
      drop index postern.api_keys_live;
      alter table postern.api_keys
        add column name text not null default 'first key',
        add column scope text not null default 'admin' check (scope in ('admin', 'write', 'read')),
        add column expires_at timestamptz(3),
        -- An array of CIDR ranges; null: every address.
        add column networks json,
        -- The key that made it; null: the sign-up or an operator.
        add column created_by text,
        -- The key that takes its place while both are valid.
        add column replaced_by text,
        add column end_reason text check (end_reason in ('rotated', 'revoked', 'expired')),
        -- Counts the changes that end the sessions opened with the key.
        add column version integer not null default 1;
      create index api_keys_live on postern.api_keys (organization_id) where revoked_at is null;
    `,
  },
  {
    name: '009 saved queries',
    sql: `
      create table postern.saved_queries (
        organization_id text not null references postern.organizations on delete cascade,
        name text collate "C" not null,
        sql text not null,
        description text,
        created_at timestamptz(3) not null,
        updated_at timestamptz(3) not null,
        -- The key that changed it last.
        updated_by text not null,
        primary key (organization_id, name)
      );
    `,
  },
  {
    name: '010 usage',
    sql: `
      -- Intervals of five minutes, and days.
      create table postern.usage (
        organization_id text not null,
        is_day boolean not null,
        starts_at timestamptz(0) not null,
        statements bigint not null,
        errors bigint not null,
        rows bigint not null,
        bytes_in bigint not null,
        bytes_out bigint not null,
        peak_sessions integer not null,
        -- How many requests took how long, by bucket.
        latency bigint[] not null,
        primary key (organization_id, is_day, starts_at)
      );
      create index usage_age on postern.usage (is_day, starts_at);
    `,
  },
  {
    name: '011 processes',
    sql: `
      -- Neither outlives a crash of the server, after which every process says again that it is there.
      create unlogged table postern.processes (number integer primary key);
      create unlogged table postern.process_requests (
        id text not null,
        -- The process that is asked.
        process integer not null,
        asked_at timestamptz not null default now(),
        reply text,
        primary key (id, process)
      );
    `,
  },
  {
    name: '012 pauses',
    sql: `
      alter table postern.organizations
        -- Who has paused the organization: a random name. Nobody else ends the pause.
        add column paused_by text,
        -- When the pause ends by itself.
        add column paused_until timestamptz(3);
    `,
  },
  {
    name: '013 clusters',
    sql: `
      create table postern.clusters (
        name text primary key,
        -- Where each process finds the URL, which has a password: env:NAME or file:/path; null: what the service is started with.
        url_source text,
        -- Which server it is, however it is reached; null: what the service is started with.
        system_identifier text unique,
        -- An array of the kinds of placement that new organizations may have there.
        placements jsonb not null,
        weight integer not null check (weight > 0),
        -- The most organizations that new ones are added to; null: any number.
        cap integer check (cap >= 0),
        is_draining boolean not null default false
      );
      insert into postern.clusters (name, placements, weight) values ('default', '["database", "schema"]', 1);
      create index organizations_cluster on postern.organizations ((placement ->> 'cluster')) where status <> 'dropped';
    `,
  },
  {
    name: '014 clones',
    sql: `
      -- Organizations that are copies of others, and are dropped when their time is over.
      create table postern.clones (
        organization_id text primary key references postern.organizations on delete cascade,
        source_id text not null,
        expires_at timestamptz(3) not null
      );
      create index clones_source on postern.clones (source_id);
      create index clones_age on postern.clones (expires_at);
    `,
  },
  {
    name: '014 moves',
    sql: `
      create table postern.moves (
        organization_id text primary key references postern.organizations (id) on delete cascade,
        -- Random: names this move.
        token text not null,
        -- The placement that the organization does not have: until the switch the new one, afterwards the former one.
        other_placement jsonb not null,
        has_switched boolean not null default false,
        begun_at timestamptz(3) not null default clock_timestamp()
      );
    `,
  },
  {
    name: '015 movers',
    sql: `
      -- The number of the process that carries the move out, or undoes it; null: a process of an earlier version.
      alter table postern.moves add column mover integer;
    `,
  },
  {
    name: '016 query statistics',
    sql: `
      -- What the statements of organizations have taken, by text without constants.
      create table postern.query_statistics (
        organization_id text not null,
        -- Whether it was run with read keys.
        is_reader boolean not null,
        -- Of the text; 0: all that are not told apart.
        query_id bigint not null,
        sql text not null,
        calls bigint not null,
        errors bigint not null,
        rows bigint not null,
        bytes bigint not null,
        total_ms double precision not null,
        max_ms double precision not null,
        first_seen timestamptz(3) not null,
        last_seen timestamptz(3) not null,
        -- How many calls took how long, by bucket.
        latency bigint[] not null,
        primary key (organization_id, is_reader, query_id)
      );
      create index query_statistics_age on postern.query_statistics (last_seen);
    `,
  },
  {
    name: '017 audit of operators',
    sql: `
      -- Operators have a chain too, and are no organization: whoever deletes one deletes its head.
      alter table postern.audit_heads drop constraint audit_heads_organization_id_fkey;
      insert into postern.audit_heads (organization_id, seq, hash, kept_after_seq, kept_after_hash)
      values ('operator', 0, sha256('operator'), 0, sha256('operator'));
    `,
  },
  {
    name: '018 limits',
    sql: `
      alter table postern.organizations
        -- What an operator has set for the organization: diskBytes, sessions, requestsPerSecond, statementMs; null or absent: the default.
        add column limits jsonb not null default '{}';
    `,
  },
  {
    name: '019 disk quotas',
    sql: `
      alter table postern.organizations
        -- How its data compares to its limit: within, near, over; read_only: over, and its sessions log in as readers.
        add column disk_state text not null default 'within';
      create index organizations_disk_state on postern.organizations (disk_state) where disk_state <> 'within';
    `,
  },
  {
    name: '020 data keys',
    sql: `
      alter table postern.api_keys
        drop constraint api_keys_scope_check,
        add constraint api_keys_scope_check check (scope in ('admin', 'write', 'data', 'read'));
      -- Which role has run it: the organization's own, or that of the keys with a scope.
      alter table postern.query_statistics add column role text;
      update postern.query_statistics set role = case when is_reader then 'read' else 'own' end;
      alter table postern.query_statistics
        drop constraint query_statistics_pkey,
        drop column is_reader,
        add primary key (organization_id, role, query_id);
    `,
  },
];

/** A step may rewrite every entry of a long audit log. Other processes wait for it. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

/** The migrations recorded in the control database do not match those of this version of Postern. */
export class CatalogMigrationError extends Error {
  override readonly name = 'CatalogMigrationError';
}

/**
 * Brings schema `postern` up to date, all steps in one transaction. Several processes may call this at the same time.
 * @throws CatalogMigrationError when an applied step is unknown to this version, or has another checksum
 */
export async function migrate(database: ControlPool, migrations: readonly CatalogMigration[] = CATALOG_MIGRATIONS): Promise<void> {
  await database.transaction(async (sql) => {
    await sql`select set_config('statement_timeout', ${String(MIGRATION_TIMEOUT_MS)}, true)`;
    await sql`select pg_advisory_xact_lock(${ADVISORY_LOCKS.migration}, 0)`;
    await sql`create schema if not exists postern`;
    await sql`
      create table if not exists postern.migrations (
        position integer primary key, name text not null, checksum text not null, applied_at timestamptz not null default now()
      )`;
    const applied = await sql<{ name: string; checksum: string }[]>`select name, checksum from postern.migrations order by position`;
    checkApplied(applied, migrations);
    for (const [index, migration] of migrations.entries()) {
      if (index >= applied.length) await apply(sql, index + 1, migration);
    }
  }, MIGRATION_TIMEOUT_MS);
}

function checkApplied(applied: readonly { name: string; checksum: string }[], migrations: readonly CatalogMigration[]): void {
  for (const [index, { name, checksum }] of applied.entries()) {
    const migration = migrations[index];
    if (migration === undefined) {
      throw new CatalogMigrationError(`the control database was written by a newer version: it has migration "${name}"`);
    }
    if (migration.name !== name || checksumOf(migration) !== checksum) {
      throw new CatalogMigrationError(`migration "${name}" of the control database differs from the one of this version`);
    }
  }
}

async function apply(sql: Sql, position: number, migration: CatalogMigration): Promise<void> {
  await sql.script(migration.sql);
  await sql`insert into postern.migrations (position, name, checksum) values (${position}, ${migration.name}, ${checksumOf(migration)})`;
}

function checksumOf({ sql }: CatalogMigration): string {
  return createHash('sha256').update(sql).digest('hex');
}
