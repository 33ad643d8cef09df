import { parseCommand, UsageError } from './admin/command.ts';
import { openOperator } from './admin/session.ts';
import { ConfigError, readConfig } from './config.ts';
import { EmbeddedError } from './embedded/error.ts';
import { ServiceError } from './errors.ts';
import { ClusterError } from './router/placement/cluster.ts';

/** `npm run admin -- …`: what an operator does to organizations, beside the running service and with its environment. */
try {
  const command = parseCommand(process.argv.slice(2));
  const session = await openOperator(readConfig(process.env));
  try {
    process.stdout.write(`${await command(session.operator, session.origin)}\n`);
  } finally {
    await session.close();
  }
} catch (error) {
  const told = [UsageError, ConfigError, EmbeddedError, ClusterError, ServiceError].some((kind) => error instanceof kind);
  const text = !(error instanceof Error) ? String(error) : told ? error.message : error.stack;
  process.stderr.write(`${error instanceof UsageError ? '' : 'postern: '}${text}\n`);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
