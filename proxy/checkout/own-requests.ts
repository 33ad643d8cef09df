import type { StateProbe } from '../pinning/state-probe.ts';
import type { ShapeReader } from '../prepared/shape-reader.ts';

/** A request that Postern sends between the client's requests. */
export type OwnRequest = { readonly own: 'settings' } | { readonly own: 'probe'; readonly probe: StateProbe } | ShapeReader;

/** Whether the subject of an entry in the reply queue marks the request as Postern's own. */
export function isOwn(subject: unknown): subject is OwnRequest {
  return typeof subject === 'object' && subject !== null && 'own' in subject;
}
