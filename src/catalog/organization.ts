import { domainToASCII, domainToUnicode } from 'node:url';
import { ServiceError } from '../errors.ts';
import { startChain } from './audit/blocks.ts';
import type { Sql } from './control-pool.ts';
import { type ApiKey, FIRST_KEY, insertKey, type NewApiKey } from './key-rows.ts';
import { type DiskState, NO_LIMITS, type OrganizationLimits } from './limits.ts';

/** Where an organization's data lives: the PostgreSQL server, the database and schema in it, and the role that owns them. */
export interface Placement {
  readonly kind: 'database' | 'schema';
  /** The name of the PostgreSQL server; `default` is the one that the service was started with. */
  readonly cluster: string;
  readonly database: string;
  readonly schema: string;
  readonly role: string;
}

/** `provisioning`: recorded, its database or schema is not ready; `dropping`: it is being dropped. Neither can log in. */
export type OrganizationStatus = 'provisioning' | 'active' | 'suspended' | 'dropping' | 'dropped';

export interface Organization {
  /** `org_` and 12 of `[a-z0-9]`: also its wire user, wire database, Postgres role and database or schema. */
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly status: OrganizationStatus;
  readonly createdAt: Date;
  readonly placement: Placement;
  readonly limits: OrganizationLimits;
  readonly diskState: DiskState;
  /** Of a clone, as far as keys are concerned: the organization that it is a copy of. */
  readonly sourceId?: string;
}

export interface OrganizationRow {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly status: OrganizationStatus;
  readonly placement: Placement;
  readonly limits: Partial<OrganizationLimits>;
  readonly disk_state: DiskState;
  readonly created_at: Date;
}

export function toOrganization({ id, name, email, status, placement, limits, disk_state, created_at }: OrganizationRow): Organization {
  const limited = { limits: { ...NO_LIMITS, ...limits }, diskState: disk_state };
  return { id, name, email, status, createdAt: created_at, placement, ...limited };
}

/** The status changes that an operator can make. An organization that is being signed up has none. */
const NEXT: Readonly<Record<OrganizationStatus, readonly OrganizationStatus[]>> = {
  provisioning: [],
  active: ['suspended', 'dropping'],
  suspended: ['active', 'dropping'],
  dropping: ['dropped'],
  dropped: [],
};

/** @throws ServiceError `invalid_request` */
export function checkChange({ id, status }: Organization, next: OrganizationStatus): void {
  if (NEXT[status].includes(next)) return;
  throw new ServiceError('invalid_request', `organization "${id}" is ${status} and cannot become ${next}`);
}

/** In the order of their creation. */
export async function listOrganizations(sql: Sql, status?: OrganizationStatus): Promise<Organization[]> {
  const rows = await sql<OrganizationRow[]>`
    select id, name, email, status, placement, limits, disk_state, created_at
    from postern.organizations
    ${status === undefined ? sql`` : sql`where status = ${status}`}
    order by created_at, id`;
  return rows.map(toOrganization);
}

export async function findOrganization(sql: Sql, id: string): Promise<Organization | undefined> {
  const [row] = await sql<OrganizationRow[]>`
    select id, name, email, status, placement, limits, disk_state, created_at from postern.organizations where id = ${id}`;
  return row && toOrganization(row);
}

export interface NewOrganization {
  readonly organization: Organization;
  readonly key: ApiKey;
}

/**
 * Inserts an organization that is being provisioned, with its first key and an empty audit chain.
 * @param uniqueName what no other organization may have: its e-mail address
 * @returns undefined when another one has it; upper and lower case count as the same
 */
export async function insertOrganization(
  sql: Sql,
  { id, name, email, placement, key }: Pick<Organization, 'id' | 'name' | 'email' | 'placement'> & { readonly key: NewApiKey },
  ownerProcess: number,
  now: Date,
  uniqueName = emailKey(email),
): Promise<NewOrganization | undefined> {
  const [row] = await sql<OrganizationRow[]>`
    insert into postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
    values (
      ${id}, ${name}, ${email}, ${uniqueName}, 'provisioning', ${ownerProcess}, ${JSON.stringify(placement)}::text::jsonb, ${now})
    on conflict (email_key) where status <> 'dropped' do nothing
    returning id, name, email, status, placement, limits, disk_state, created_at`;
  if (row === undefined) return undefined;
  await startChain(sql, id);
  return { organization: toOrganization(row), key: await insertKey(sql, id, key, FIRST_KEY, { at: now }) };
}

/**
 * Locks the organization against other changes until the transaction ends.
 * @throws ServiceError `not_found`
 */
export async function lockOrganization(sql: Sql, id: string): Promise<Organization> {
  const [row] = await sql<OrganizationRow[]>`
    select id, name, email, status, placement, limits, disk_state, created_at from postern.organizations where id = ${id} for update`;
  if (row === undefined) throw noOrganization(id);
  return toOrganization(row);
}

/** Runs work on a locked organization in one transaction, and notifies every process when it is committed. */
export type ChangeOrganization = <T>(organizationId: string, work: (sql: Sql, organization: Organization) => Promise<T>) => Promise<T>;

export interface ProfileChanges {
  readonly name?: string;
  readonly email?: string;
}

/** @returns undefined when the e-mail address is taken */
export async function updateProfile(sql: Sql, id: string, { name, email }: ProfileChanges): Promise<Organization | undefined> {
  const key = email === undefined ? null : emailKey(email);
  const [row] = await sql<OrganizationRow[]>`
    update postern.organizations
    set name = coalesce(${name ?? null}, name), email = coalesce(${email ?? null}, email), email_key = coalesce(${key}, email_key)
    where id = ${id} and not exists (select from postern.organizations where email_key = ${key} and status <> 'dropped' and id <> ${id})
    returning id, name, email, status, placement, limits, disk_state, created_at`;
  return row && toOrganization(row);
}

export function emailTaken(): ServiceError {
  return new ServiceError('email_taken', 'an organization with this e-mail address exists already', {
    hint: 'Its key still works, and POST /api/auth/rotate-key replaces it. If the key is lost, the operator can issue a new one: postern admin key issue <org>.',
  });
}

export function noOrganization(id: string): ServiceError {
  return new ServiceError('not_found', `there is no organization "${id}"`);
}

export async function updateStatus(sql: Sql, id: string, status: OrganizationStatus): Promise<void> {
  await sql`update postern.organizations set status = ${status}, revision = revision + 1 where id = ${id}`;
}

const NAME_MAX_CHARACTERS = 100;

/** Invisible characters that change how others are shown, except the joiner of emoji. */
const FORMATTING = /(?!\u200d)[\p{Cf}\p{Zl}\p{Zp}]/u;
/** The blank Braille pattern counts as a symbol. */
const VISIBLE = /[^\p{Z}\p{C}\p{M}\p{Default_Ignorable_Code_Point}\u2800]/u;

interface NameRule {
  readonly message: string;
  readonly isKept: (name: string) => boolean;
}

/** Which characters a name may have, whatever it names: two names that look the same should be the same. */
export const CHARACTER_RULES: readonly NameRule[] = [
  { message: 'must not contain control characters', isKept: (name) => !/[\p{Cc}\p{Surrogate}]/u.test(name) },
  { message: 'must not contain invisible formatting characters or line separators', isKept: (name) => !FORMATTING.test(name) },
  { message: 'must have a visible character', isKept: (name) => name === '' || FORMATTING.test(name) || VISIBLE.test(name) },
];

/** What makes a text no name of an organization; names are for people to read. */
export const NAME_RULES: readonly NameRule[] = [
  {
    message: `must have 1 to ${NAME_MAX_CHARACTERS} characters`,
    isKept: (name) => name !== '' && name.length <= 2 * NAME_MAX_CHARACTERS && [...name].length <= NAME_MAX_CHARACTERS,
  },
  ...CHARACTER_RULES,
];

/** @see https://www.rfc-editor.org/rfc/rfc5321#section-4.5.3.1.3 */
export const EMAIL_MAX_BYTES = 254;
const DOMAIN_MAX_CHARACTERS = 253;

/** Visible characters: the mailbox is read by people. */
const LOCAL_PART = /^(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]|(?![\p{ASCII}\p{Default_Ignorable_Code_Point}\u2800])[^\p{C}\p{Z}])+$/u;
/** The joiners and the middle dots occur in words of some languages; the full stops are those of East Asia. */
const DOMAIN = /^(?:[A-Za-z0-9.-]|(?!\p{ASCII})[\p{L}\p{M}\p{N}\u200c-\u200d\u00b7\u30fb\u3002\uff0e\uff61])+$/u;
const ASCII_DOMAIN = /^(?:[a-z0-9][a-z0-9-]{0,62}\.)+(?:[a-z]{2,63}|xn--[a-z0-9-]{1,59})$/;

/**
 * Reads an e-mail address; it may be an internationalized one.
 * @returns the address in NFC with its domain in lower case; undefined if it is none
 * @see https://www.rfc-editor.org/rfc/rfc6531#section-3.3
 */
export function parseEmail(text: string): string | undefined {
  if (text.length > EMAIL_MAX_BYTES) return undefined;
  const address = text.normalize('NFC');
  const at = address.lastIndexOf('@');
  const local = address.slice(0, Math.max(0, at));
  const domain = canonicalDomain(address.slice(at + 1));
  if (domain === undefined || !LOCAL_PART.test(local) || local.split('.').includes('')) return undefined;
  const email = `${local}@${domain}`;
  return Buffer.byteLength(email) > EMAIL_MAX_BYTES ? undefined : email;
}

/** By which addresses are the same: whatever the case of their letters, and however the domain is written. */
export function emailKey(email: string): string {
  const at = email.lastIndexOf('@');
  return `${email.slice(0, at).normalize('NFC').toLowerCase().normalize('NFC')}@${domainToASCII(email.slice(at + 1))}`;
}

/** @see https://www.unicode.org/reports/tr46/ */
function canonicalDomain(text: string): string | undefined {
  const ascii = DOMAIN.test(text) ? domainToASCII(text) : '';
  if (ascii.length > DOMAIN_MAX_CHARACTERS || !ASCII_DOMAIN.test(ascii)) return undefined;
  return text.toLowerCase() === ascii ? ascii : domainToUnicode(ascii);
}
