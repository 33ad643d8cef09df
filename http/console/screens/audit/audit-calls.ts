import { call } from '../../api/client.ts';

/** `GET /api/audit` */
export interface AuditEntry {
  readonly id: string;
  readonly seq: number;
  readonly occurredAt: string;
  readonly action: string;
  readonly surface: string;
  readonly actor: { readonly keyId: string | null; readonly keyPrefix: string | null };
  readonly sourceIp: string | null;
  readonly userAgent: string | null;
  readonly applicationName: string | null;
  readonly requestId: string | null;
  readonly statement?: {
    readonly sql: string;
    readonly sqlHash: string;
    readonly command: string | null;
    readonly paramCount: number | null;
  };
  readonly session?: { readonly statements: number; readonly bytesIn: number; readonly bytesOut: number; readonly reason: string };
  readonly outcome: {
    readonly status: 'ok' | 'error';
    readonly httpStatus: number | null;
    readonly sqlstate: string | null;
    readonly rowCount: number | null;
    readonly durationMs: number | null;
  };
  readonly prevHash: string;
  readonly hash: string;
}

export interface AuditPage {
  readonly data: readonly AuditEntry[];
  readonly hasMore: boolean;
  readonly nextCursor: string | null;
  readonly unreadable?: readonly { readonly fromSeq: number; readonly toSeq: number }[];
}

/** `GET /api/audit/verify` */
export interface AuditVerification {
  readonly ok: boolean;
  readonly count: number;
  readonly headSeq: number;
  readonly headHash: string;
  readonly firstBad?: { readonly seq: number; readonly id?: string; readonly reason: string };
}

/** The body of `POST /api/audit`. */
export interface AuditSearch {
  readonly limit: number;
  readonly after?: string;
  readonly action?: string;
  readonly outcome?: string;
  readonly since?: string;
  readonly until?: string;
  readonly requestId?: string;
}

export function searchAudit(body: AuditSearch, signal: AbortSignal): Promise<AuditPage> {
  return call('POST', 'api/audit', { body, signal, isSafe: true });
}

export function verifyAudit(signal: AbortSignal): Promise<AuditVerification> {
  return call('GET', 'api/audit/verify', { signal });
}

interface ApiDescription {
  readonly paths: {
    readonly '/api/audit': {
      readonly get: { readonly parameters: readonly { readonly name: string; readonly schema: { readonly enum?: readonly string[] } }[] };
    };
  };
}

let actions: readonly string[] | undefined;

/** What entries may be about, from the API's description of itself. */
export async function auditActions(signal: AbortSignal): Promise<readonly string[]> {
  if (actions !== undefined) return actions;
  const { paths } = await call<ApiDescription>('GET', 'api/openapi.json', { signal });
  const found = paths['/api/audit'].get.parameters.find(({ name }) => name === 'action')?.schema.enum ?? [];
  actions = found.toSorted();
  return actions;
}
