import { signal } from '@preact/signals';

export type Scope = 'admin' | 'write' | 'read';

/** `GET /api/auth/me` */
export interface Me {
  readonly organizationId: string;
  readonly orgName: string;
  readonly email: string;
  readonly key: {
    readonly keyId: string;
    readonly prefix: string;
    readonly name: string;
    readonly scope: Scope;
    readonly expiresAt: string | null;
    readonly networks: readonly string[] | null;
  };
  readonly connection: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly database: string;
    readonly sslmode: string;
  };
  readonly connectionString: string;
  readonly limits: { readonly statementTimeoutMs: number; readonly maxStatementTimeoutMs: number; readonly maxStatements: number };
}

/** Whose data is shown; undefined before somebody has signed in. */
export const me = signal<Me | undefined>(undefined);
