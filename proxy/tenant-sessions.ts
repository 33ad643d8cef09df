import { StatementRegistry } from '../src/backend/prepared-statements.ts';

const MAX_REMEMBERED_LOGINS = 100;
const MAX_REMEMBERED_TENANTS = 1_000;

/** What the wire sessions of one organization share in this process. */
export class TenantSessions {
  count = 0;
  registry = new StatementRegistry();
  readonly sequences = { areRead: false };
  /** ParameterStatus values that a login with certain settings gives, by those settings. */
  readonly #logins = new Map<string, ReadonlyMap<string, string>>();

  loginParameters(settings: string): ReadonlyMap<string, string> | undefined {
    return this.#logins.get(settings);
  }

  rememberLogin(settings: string, parameters: ReadonlyMap<string, string>): void {
    const [oldest] = this.#logins.keys();
    if (this.#logins.size >= MAX_REMEMBERED_LOGINS && oldest !== undefined) this.#logins.delete(oldest);
    this.#logins.set(settings, parameters);
  }

  forgetLogins(): void {
    this.#logins.clear();
  }
}

/** The organizations with wire sessions, and some that had them a while ago. */
export class TenantDirectory {
  readonly #tenants = new Map<string, TenantSessions>();

  /** One session more. */
  enter(organizationId: string): TenantSessions {
    const tenant = this.#tenants.get(organizationId) ?? new TenantSessions();
    this.#tenants.delete(organizationId);
    this.#tenants.set(organizationId, tenant);
    tenant.count += 1;
    return tenant;
  }

  /** One session less. The last one takes the statements with it. */
  leave(tenant: TenantSessions): void {
    tenant.count -= 1;
    if (tenant.count > 0) return;
    tenant.registry = new StatementRegistry();
    for (const [id, oldest] of this.#tenants) {
      if (this.#tenants.size <= MAX_REMEMBERED_TENANTS) break;
      if (oldest.count === 0) this.#tenants.delete(id);
    }
  }
}
