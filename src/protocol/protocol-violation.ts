import { ServiceError } from '../errors.ts';

/** Who sent the bytes; it decides which error a malformed message is. */
export type Sender = 'frontend' | 'backend';

/** The error for a malformed message: protocol_violation (08P01) from a client, a failed connection (08006) from a backend. */
export function violation(sender: Sender, message: string): ServiceError {
  if (sender === 'frontend') return new ServiceError('protocol_violation', message);
  return new ServiceError('backend_lost', `the database server's reply could not be understood: ${message}`);
}
