import { eventually } from '../support/eventually.ts';
import type { TestOrganization, TestService } from '../support/service.ts';

/** Where an organization connects to, as most clients of Node want to be told. */
export function addressOf({ wirePort }: TestService, { id, apiKey }: TestOrganization) {
  return { host: '127.0.0.1', port: wirePort, user: id, password: apiKey, database: id };
}

export function urlOf({ wirePort }: TestService, { id, apiKey }: TestOrganization): string {
  return `postgresql://${id}:${apiKey}@127.0.0.1:${wirePort}/${id}`;
}

/** @throws what the promise does not fail with, if it does not fail */
export async function failureOf(promise: PromiseLike<unknown>): Promise<unknown> {
  let result: unknown;
  try {
    result = await promise;
  } catch (failure) {
    return failure;
  }
  throw new Error(`did not fail, but gave ${JSON.stringify(result)}`);
}

/** Closes a service after its clients, some of which say that they have ended before they have closed their connections. */
export async function closeAfterClients(service: TestService): Promise<void> {
  const told = (name: string) => service.observations.filter((observation) => observation.name === name).length;
  await eventually('all clients to be gone', () => told('wire.connected') === told('wire.disconnected'));
  await service.close();
}
