import { newServerStatement, type SessionState, type Settings } from '../src/backend/session-state.ts';
import type { StatementShape } from '../src/protocol/backend.ts';
import {
  canBePreparedAgain,
  type PrepareStatement,
  prepareStatements,
  type SessionTraits,
  sessionTraitsOf,
} from '../src/syntax/session-traits.ts';
import { ClientStatements, type NamedStatement, type StatementMemory } from './client-statements.ts';
import { type FoundStatements, MAX_SQL_STATEMENTS, type Pins, UNKNOWN_NAME } from './pins.ts';

/** What is known of a statement that SQL has prepared, by `PREPARE`. */
export interface PreparedBySql {
  /** The backend's session where it is under its own name, as long as that has the same {@link SessionState.sqlHome}. */
  readonly home: object;
  /** The text in which it was prepared. */
  readonly source: string;
  /** Its PREPARE; undefined if it cannot be prepared again elsewhere. */
  readonly statement: string | undefined;
  /** It is there by SQL, and not by the protocol: `pg_prepared_statements` shows the difference. */
  readonly isThereBySql: boolean;
  /** The settings at that moment on which its constants depend. */
  readonly constants: string;
}

interface SqlStatement extends NamedStatement {
  readonly bySql: PreparedBySql;
}

/** The settings with which PostgreSQL reads constants, and texts at all. */
const OF_CONSTANTS = [
  'array_nulls',
  'backslash_quote',
  'client_encoding',
  'datestyle',
  'intervalstyle',
  'lc_monetary',
  'standard_conforming_strings',
  'timezone',
  'timezone_abbreviations',
  'transform_null_equals',
  'xmloption',
];

function constantsOf(settings: Settings): string {
  return OF_CONSTANTS.map((name) => settings.get(name) ?? '').join('\n');
}

/** A text whose meaning depends on them: it has a string, or a letter that is not ASCII. */
const HAS_CONSTANT = /['$\x80-\xff]/;
/** A constant that is the OID of what its text names when the statement is prepared. */
const OID_CONSTANT = /\breg(?:class|proc|procedure|oper|operator|type|role|namespace|config|dictionary|collation)\b/i;

interface SqlStatementsOwner {
  readonly isOver: boolean;
  readonly pins: Pins;
  readonly services: { readonly statementMemory: StatementMemory };
  readonly standardConformingStrings: boolean;
}

/**
 * The statements that a client has prepared by SQL. On the backend where that was done they exist under their own names; elsewhere they
 * are prepared again when they are needed, like those that the protocol has prepared. The server is asked which there are. Names are
 * Latin-1 strings.
 */
export class SqlStatements {
  readonly #session: SqlStatementsOwner;
  readonly #statements: ClientStatements;
  /** Those that the server has not described yet. */
  #undescribed: string[] = [];
  /** It is not known which the backend has: there are too many, or the client's encoding lacks letters of their names. */
  #areUnknown = false;

  constructor(session: SqlStatementsOwner) {
    this.#session = session;
    this.#statements = new ClientStatements(session.services.statementMemory, session);
  }

  get isEmpty(): boolean {
    return !this.#statements.hasNames;
  }

  get(name: string): SqlStatement | undefined {
    return this.#statements.get(name) as SqlStatement | undefined;
  }

  *entries(): Iterable<[string, SqlStatement]> {
    yield* this.#statements.entries() as Iterable<[string, SqlStatement]>;
  }

  nameOf(serverName: string): string {
    return this.#statements.nameOf(serverName);
  }

  /** @returns a statement that the backend does not have under its own name */
  absent(name: string, state: SessionState | undefined): SqlStatement | undefined {
    const statement = this.get(name);
    return statement === undefined || isHome(statement, state) ? undefined : statement;
  }

  /** Those that a text with these traits needs, and that the backend does not have under their own names, or not by SQL. */
  *missing({ executes, listsPrepared }: SessionTraits, state: SessionState): Iterable<[string, SqlStatement]> {
    for (const entry of this.entries()) {
      const isThere = isHome(entry[1], state) && (entry[1].bySql.isThereBySql || !listsPrepared);
      if (!isThere && (executes.length === 0 || executes.includes(entry[0]))) yield entry;
    }
  }

  areMissing(traits: SessionTraits, state: SessionState): boolean {
    for (const _ of this.missing(traits, state)) return true;
    return false;
  }

  /** @returns as {@link ClientStatements.delete} */
  delete(name: string): () => void {
    return this.#statements.delete(name);
  }

  /** All have been deallocated. */
  clear(): void {
    this.#statements.clear();
    this.#areUnknown = false;
    this.#changed();
  }

  end(): void {
    this.#statements.end();
  }

  /** The session has got a backend. Its own statements are still there, or those of another session are closed. */
  taken(state: SessionState): void {
    const { sqlHome } = state;
    if (sqlHome === undefined) return;
    const own = [...this.entries()].filter(([, { bySql }]) => bySql.home === sqlHome).map(([name]) => name);
    if (own.length === 0 || own.some((name) => !state.staleNames.has(name))) state.sqlHome = undefined;
    else for (const name of own) state.staleNames.delete(name);
  }

  /** The session gives up its backend: whoever has it next closes them, unless it is this session. */
  left(state: SessionState): void {
    if (state.sqlHome === undefined) return;
    for (const [name, statement] of this.entries()) if (isHome(statement, state)) state.staleNames.add(name);
  }

  /** The server has been asked which there are on this backend. */
  found({ bySql, byProtocol }: FoundStatements, state: SessionState): void {
    const areMany = bySql.size + byProtocol.size > MAX_SQL_STATEMENTS;
    this.#areUnknown = areMany || bySql.has(UNKNOWN_NAME) || byProtocol.has(UNKNOWN_NAME);
    if (this.#areUnknown || (this.isEmpty && bySql.size === 0)) return;
    for (const [name, statement] of [...this.entries()])
      if (isHome(statement, state) && !bySql.has(name) && !byProtocol.has(name)) this.delete(name);
    for (const [name, source] of bySql) {
      const known = this.get(name);
      if (known !== undefined && isHome(known, state) && known.bySql.source === source) continue;
      state.sqlHome ??= {};
      this.#add(name, source, state.sqlHome);
    }
    this.#changed();
  }

  #add(name: string, source: string, home: object): void {
    const { pins, services } = this.#session;
    const prepared = this.#preparedIn(source, name);
    const definition = Buffer.from(`${prepared === undefined ? '' : queryOf(prepared, source)}\0\0\0`, 'latin1');
    const isKnown = prepared !== undefined && services.statementMemory.hasRoomFor(definition.length + source.length);
    const bySql = {
      home,
      source,
      statement: isKnown ? prepared.text : undefined,
      isThereBySql: true,
      constants: constantsOf(pins.settings),
    };
    const traits = sessionTraitsOf(prepared?.query ?? source);
    this.#statements.set(name, { server: newServerStatement(definition), traits, signals: [], deallocates: [], isUsed: true, bySql });
    if (isKnown) this.#undescribed.push(name);
  }

  /** @returns undefined if it cannot be prepared from this text, or would not mean the same */
  #preparedIn(source: string, name: string): PrepareStatement | undefined {
    if (source === '' || !canBePreparedAgain(source) || OID_CONSTANT.test(source)) return undefined;
    if (source.includes('\\') && !this.#session.standardConformingStrings) return undefined;
    const [found, ...others] = [...prepareStatements(source)].filter((statement) => statement.name === name);
    return others.length > 0 ? undefined : found;
  }

  /** @returns the names of those that the backend has to describe */
  takeUndescribed(): readonly string[] {
    const names = this.#undescribed;
    if (names.length > 0) this.#undescribed = [];
    return names;
  }

  described(name: string, shape: StatementShape): void {
    const server = this.get(name)?.server;
    if (server === undefined) return;
    server.shape = shape;
    server.isSent = true;
  }

  /** A statement has been prepared on the backend under its own name, as it was at first. */
  adopted(name: string, state: SessionState, isThereBySql: boolean): void {
    const statement = this.get(name);
    if (statement === undefined) return;
    state.sqlHome ??= {};
    state.staleNames.delete(name);
    this.#statements.set(name, { ...statement, bySql: { ...statement.bySql, home: state.sqlHome, isThereBySql } } as NamedStatement);
  }

  /** Whether the session has to stay on this backend, because one of the statements there cannot be had elsewhere. */
  mustStay(state: SessionState): boolean {
    if (this.#areUnknown || this.isEmpty) return this.#areUnknown;
    const constants = constantsOf(this.#session.pins.settings);
    for (const [, statement] of this.entries()) if (isHome(statement, state) && !isMovable(statement, constants)) return true;
    return false;
  }

  #changed(): void {
    this.#session.pins.hasSqlStatements = !this.isEmpty;
  }
}

/** The query, where it stands in the source: an error may tell its position. */
function queryOf({ query, queryStart }: PrepareStatement, source: string): string {
  const ahead = Buffer.from(source.slice(0, queryStart), 'latin1').toString('utf8');
  return `${' '.repeat([...ahead].length)}${query}`;
}

function isHome({ bySql: { home } }: SqlStatement, state: SessionState | undefined): boolean {
  return home === state?.sqlHome;
}

function isMovable({ bySql: { statement, constants, source }, server: { shape } }: SqlStatement, constantsNow: string): boolean {
  if (statement === undefined || shape === undefined || shape.columnsDigest === '' || shape.parameters === undefined) return false;
  return constants === constantsNow || !HAS_CONSTANT.test(source);
}
