import type { Kind, Scene } from './scene.ts';

/** What the server says to an attack. */
export type Answer =
  /** A server error with this SQLSTATE. */
  | { readonly refused: string }
  /** These rows and no others, as text. */
  | { readonly shows: readonly (readonly (string | null)[])[] }
  /** Visible by design: names like this one, and never what is in the rows. */
  | { readonly names: string };

/** One way for the intruder to get at what is the victim's, and what must come of it at both doors. */
export interface Attack {
  /** Ends the sentence "the intruder gets nowhere …". */
  readonly way: string;
  /** Several: statements of one transaction, of which the last is the attack and the others must go through. */
  readonly sql: (scene: Scene) => string | readonly string[];
  readonly answer: Answer | Readonly<Record<Kind, Answer>> | Readonly<Record<'wire' | 'http', Answer>>;
  /** Shows that there is something to get: run by somebody who may, and undone. */
  readonly proof: Proof;
}

/** SQL that has to succeed. The victim's must bring the canary to light; the superuser's is run in the intruder's database. */
export type Proof = { readonly victim: (scene: Scene) => string } | { readonly superuser: (scene: Scene) => string };

export const refused = (sqlstate: string): Answer => ({ refused: sqlstate });
export const shows = (...rows: readonly (string | null)[][]): Answer => ({ shows: rows });
export const names = (name: string): Answer => ({ names: name });

/** Another place is not there at all in a database of one's own; in a shared one it is closed. */
export function elsewhere(inDatabase: string, inSchema = '42501'): Readonly<Record<Kind, Answer>> {
  return { database: refused(inDatabase), schema: refused(inSchema) };
}

/** What takes privileges that an organization does not have: the same statement goes through for a superuser, in the same place. */
export function denied(
  way: string,
  sql: Attack['sql'],
  proof: (scene: Scene) => string = (scene) => [sql(scene)].flat().join('; '),
): Attack {
  return { way, sql, answer: refused('42501'), proof: { superuser: proof } };
}
