import type { StateProbe } from '../pinning/state-probe.ts';
import type { ShapeReader } from '../prepared/shape-reader.ts';

/** A request of Postern's among the client's. */
export type OwnRequest = { readonly own: 'settings' } | { readonly own: 'probe'; readonly probe: StateProbe } | ShapeReader;

/** Whether what goes with a request through the reply queue says that it is Postern's. */
export function isOwn(subject: unknown): subject is OwnRequest {
  return typeof subject === 'object' && subject !== null && 'own' in subject;
}
