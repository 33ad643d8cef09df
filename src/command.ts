import { packageVersion } from './runtime/package-folder.ts';

const USAGE = `usage: postern [command]

  start               starts the service; so does no command
  dev                 starts it on free ports, with an organization whose DATABASE_URL is printed, and kept in .env.postern;
                      prints an address that signs in to the console
  migrate [folder]    applies a folder of SQL files to an organization
  types               writes TypeScript types of an organization's tables
  admin <command>     what an operator does to organizations; alone it lists its commands
  --help, --version

Settings are environment variables, described in docker/README.md and under /docs of a running service. Those that are changed most:

  DATABASE_URL        a PostgreSQL of your own, with POSTERN_SECRET; else an embedded one is started
  POSTERN_DATA_DIR    where the embedded one keeps its data (./data)
  POSTERN_HTTP_PORT, POSTERN_PG_PORT, POSTERN_OPS_PORT    8080, 6432, 9464; 0: any free one
`;

const [command, ...rest] = process.argv.slice(2);
switch (command) {
  case undefined:
  case 'start':
    if (rest.length > 0) refuse(`start takes no arguments: ${rest[0]}`);
    else await import('./main.ts');
    break;
  case 'dev':
    if (rest.length > 0) refuse(`dev takes no arguments: ${rest[0]}`);
    else await (await import('./dev.ts')).runForDevelopment(process.env);
    break;
  case 'migrate':
    process.exitCode = await (await import('./client/migrate.ts')).runMigrate(rest, process.env);
    break;
  case 'types':
    process.exitCode = await (await import('./client/types.ts')).runTypes(rest, process.env);
    break;
  case 'admin':
    await (await import('./admin/admin.ts')).runAdminCommand(rest, process.env);
    break;
  case 'help':
  case '--help':
  case '-h':
    process.stdout.write(USAGE);
    break;
  case '--version':
  case '-V':
    process.stdout.write(`${packageVersion()}\n`);
    break;
  default:
    refuse(`there is no command ${command}`);
}

function refuse(reason: string): void {
  process.stderr.write(`postern: ${reason}\n\n${USAGE}`);
  process.exitCode = 2;
}
