import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { parseCommand } from './admin/commands.ts';
import { openOperator } from './admin/open-operator.ts';
import { UsageError } from './admin/usage-error.ts';
import { ConfigError, readConfig } from './config.ts';
import { EmbeddedError } from './embedded/data-directory.ts';
import { ServiceError } from './errors.ts';
import { ClusterError } from './placement/cluster.ts';

/** `postern admin …`: commands for operators, run beside the service and with the same environment. */
try {
  const command = parseCommand(process.argv.slice(2));
  const session = await openOperator(readConfig(process.env));
  try {
    process.stdout.write(`${await command(session, ask)}\n`);
  } finally {
    await session.close();
  }
} catch (error) {
  const isUsage = error instanceof UsageError;
  const isExpected = [UsageError, ConfigError, EmbeddedError, ClusterError, ServiceError].some((kind) => error instanceof kind);
  const text = !(error instanceof Error) ? String(error) : isExpected ? error.message : error.stack;
  const parts = [text === '' ? '' : `postern: ${text}`, isUsage ? error.usage : ''];
  process.stderr.write(`${parts.filter((part) => part !== '').join('\n\n')}\n`);
  process.exitCode = isUsage ? 2 : 1;
}

/** Ctrl-D is an empty answer. */
async function ask(question: string): Promise<string | undefined> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return undefined;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const closed = once(terminal, 'close').then(() => '');
  try {
    return await Promise.race([terminal.question(question), closed]);
  } finally {
    terminal.close();
  }
}
