import type pg from 'pg';
import type { BackendLogin } from '../../backend/connection.ts';
import type { ControlConnection } from '../../catalog/control-pool.ts';
import type { AdminLogin, RoleLogin, TlsFiles } from './server/admin-login.ts';
import type { SharedFacts } from './shared-database/shared-database-setup.ts';

/** The PostgreSQL server cannot be used; the message is one line for the person who started Postern. */
export class ClusterError extends Error {
  override readonly name = 'ClusterError';
}

/** A PostgreSQL server that has been set up: it has the platform role, the control database, the template and the shared database. */
export interface Cluster extends SharedFacts {
  readonly name: string;
  /** Which server it is, however it is reached; undefined if it does not say. */
  readonly systemIdentifier: string | undefined;
  readonly host: string;
  readonly port: number;
  readonly ssl: pg.ClientConfig['ssl'];
  readonly tlsFiles: TlsFiles;
  /** The role for everything except tenants' own SQL. It has CREATEDB and CREATEROLE and is never a superuser. */
  readonly platform: RoleLogin;
  /** For the set-up, and for what replication leaves to superusers; undefined: the server's URL has another role. */
  readonly superuser: AdminLogin | undefined;
  readonly controlDatabase: string;
  /** Holds the schemas of organizations that have one each; neither the control database nor `postgres`. */
  readonly sharedDatabase: string;
  /** `server_version_num`, e.g. 180004. */
  readonly serverVersion: number;
  /** How many sessions roles without special rights can have together. */
  readonly maxConnections: number;
  /** The settings of every organization's role, as far as the platform role may set them. */
  readonly roleSettings: Readonly<Record<string, string>>;
  /** Whether large objects, and temporary ones in the shared database, are left to organizations' own roles. */
  readonly hasOwnersRole: boolean;
  /** Whether organizations may evaluate XPath expressions. */
  readonly allowXpath: boolean;
  readonly secret: string;
  /** How to log in to a database of this cluster. */
  login(session: RoleLogin & { readonly database: string; readonly options?: string }): BackendLogin;
}

/** How the platform role logs in to a server's control database: the service's own, or one without tables on the other servers. */
export function controlConnection({ host, port, ssl, platform, controlDatabase }: Cluster): ControlConnection {
  return { host, port, ...platform, database: controlDatabase, ...(ssl === undefined ? {} : { ssl }) };
}
