/** All commands, with what each does below it or beside it. */
export const USAGE = `usage: postern admin <command>

  org list                     all organizations
  org create <name> <email>    a new organization with its key, whatever POSTERN_SIGNUP says
  org suspend <id>             ends its sessions and refuses its key until it is resumed
  org resume <id>
  org drop <id> [--yes]        removes its data, role and keys for good; its audit log is kept; asks first, unless --yes is given
  org clone <id> [--name <name>] [--expires <time>] [--force]
                               a copy of it with a key of its own, dropped after 1d, or another time up to 7d: 30m, 12h; its clients wait
                               meanwhile; --force ends transactions and pinned sessions that do not end
  org move <id> [--to <cluster>] [--placement database|schema] [--pause <seconds>] [--force] [--replicate]
                               moves it while its clients wait, for at most 60 seconds or those given; what is not done by then is undone;
                               the former copy is kept; --force as above; --replicate copies most rows before they wait, which a large
                               database does anyway on its way to another server, if both servers allow it
  org move <id> --to-node <host:port>
                               moves its tables to another worker of Citus
  org move <id> --finish       removes the former copy
  org move <id> --abort        undoes a move that has not been completed; when its command was killed, the running service does so
  key issue <id>               a new admin key for an organization that has lost its own; its other admin keys become invalid
  invite [--email <email>] [--expires <time>]
                               an invitation to sign up once, for that address only, within 7d, or another time: 30m, 12h, 90d
  cluster list                 the PostgreSQL servers that organizations live on
  cluster add <name> <url> [--placement database,schema] [--weight <n>] [--cap <n>]
                               sets a server up and has new organizations added to it; <url> is env:NAME or file:/path, where each
                               process of the service finds its postgres:// URL
  cluster drain <name>         adds no more organizations to it
  cluster open <name>          adds organizations to it again
  cluster remove <name>        when no organization lives there
  citus setup --workers <host:port,…> [--cluster <name>]
                               makes the default cluster, or that one, a Citus coordinator of these workers; again for each new one; tells
                               what it may not do
  citus disable <host:port> [--cluster <name>]
                               does without a worker that is down, and refuses its organizations, until citus setup is run with it again`;

/**
 * @param name of a command such as `org drop`, or the first word of several
 * @returns what is said of these commands, and of all where there is none of that name
 */
export function usageOf(name: string): string {
  const [heading = '', ...entries] = USAGE.split(/(?<!\n)\n+(?= {2}\S)/);
  const found = entries.filter((entry) => entry.startsWith(`  ${name} `));
  return found.length === 0 ? USAGE : `${heading}\n\n${found.join('\n')}`;
}
