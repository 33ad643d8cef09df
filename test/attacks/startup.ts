import type { Pretence } from './entrances.ts';
import type { Scene } from './scene.ts';

/** A login with the intruder's key that pretends to be somebody else, or asks for more than its due. */
export interface LoginAttack {
  readonly way: string;
  /** Instead of the intruder's own user and database. */
  readonly parameters: (scene: Scene) => Pretence['parameters'];
  readonly scramUser?: (scene: Scene) => string;
  /** SQLSTATE of the refusal; `itself`: lets the intruder in, as nobody but itself; `nothing`: so, and the victim's table is not found. */
  readonly comesTo: string;
}

/** One that names its own user, and its own database. */
function asking(way: string, comesTo: string, more: (scene: Scene) => Pretence['parameters']): LoginAttack {
  return { way, parameters: (scene) => [['user', scene.intruder.id], ...more(scene)], comesTo };
}

const withOptions = (options: string, comesTo: string): LoginAttack =>
  asking(`by the options ${options}`, comesTo, ({ victim }) => [['options', options.replace('$victim', victim.id)]]);

/** Fewer of them than ten may be failures under the victim's name at both doors together: the eleventh is refused as such. */
export const LOGIN_ATTACKS: readonly LoginAttack[] = [
  { way: 'as another', parameters: ({ victim }) => [['user', victim.id]], comesTo: '28P01' },
  {
    way: 'as another to its own database',
    parameters: ({ victim, intruder }) => [
      ['user', victim.id],
      ['database', intruder.id],
    ],
    comesTo: '28P01',
  },
  ...['postgres', 'postern_platform', 'org_000000000000'].map(
    (user): LoginAttack => ({ way: `as ${user}`, parameters: () => [['user', user]], comesTo: '28P01' }),
  ),
  { way: 'as itself in capital letters', parameters: ({ intruder }) => [['user', intruder.id.toUpperCase()]], comesTo: '28P01' },
  { way: 'as another by a name that is cut', parameters: ({ victim }) => [['user', victim.id.padEnd(80)]], comesTo: '28P01' },
  { way: 'as nobody', parameters: ({ victim }) => [['database', victim.id]], comesTo: '28000' },
  {
    way: 'as two, itself first',
    parameters: ({ victim, intruder }) => [
      ['user', intruder.id],
      ['user', victim.id],
    ],
    comesTo: '28P01',
  },
  {
    way: 'as two, itself last',
    parameters: ({ victim, intruder }) => [
      ['user', victim.id],
      ['user', intruder.id],
    ],
    comesTo: 'itself',
  },
  {
    way: 'as another inside of SCRAM',
    parameters: ({ intruder }) => [['user', intruder.id]],
    scramUser: ({ victim }) => victim.id,
    comesTo: 'itself',
  },
  {
    way: 'as itself inside of SCRAM',
    parameters: ({ victim }) => [['user', victim.id]],
    scramUser: ({ intruder }) => intruder.id,
    comesTo: '28P01',
  },
  asking('to the database of another', '3D000', ({ victim }) => [['database', victim.id]]),
  ...['postgres', 'template1', 'postern_shared', 'postern_template'].map((name) =>
    asking(`to ${name}`, '3D000', () => [['database', name]]),
  ),
  asking('to two databases', '3D000', ({ victim, intruder }) => [
    ['database', intruder.id],
    ['database', victim.id],
  ]),
  asking('by the role of another', '42501', ({ victim }) => [['role', victim.id]]),
  asking('by the role of another, in capital letters', '42501', ({ victim }) => [['ROLE', victim.id]]),
  asking('by the session authorization of another', '42501', ({ victim }) => [['session_authorization', victim.id]]),
  asking('by the search path of another', 'nothing', ({ victim }) => [['search_path', victim.id]]),
  asking('by being a superuser', '55P02', () => [['is_superuser', 'on']]),
  asking('by a role as an option of the protocol', 'itself', ({ victim }) => [['_pq_.role', victim.id]]),
  asking('by physical replication', '0A000', () => [['replication', 'true']]),
  asking('by logical replication', '0A000', ({ intruder }) => [
    ['database', intruder.id],
    ['replication', 'database'],
  ]),
  withOptions('-c role=$victim', '42501'),
  withOptions('--role=$victim', '42501'),
  withOptions('-crole=$victim', '42501'),
  withOptions('-c session_authorization=postgres', '42501'),
  withOptions('-c search_path=$victim', 'nothing'),
  withOptions("-c search_path=x';SET\\ ROLE\\ postgres;--", '22023'),
  withOptions('-c temp_file_limit=-1', '42501'),
  withOptions('-c log_statement=all', '42501'),
  withOptions('-c session_replication_role=replica', '42501'),
  withOptions('-c allow_system_table_mods=on', '42501'),
  withOptions('-c session_preload_libraries=evil', '42501'),
  withOptions('-c config_file=/etc/passwd', '55P02'),
  withOptions('-c postern.tenant=$victim', '42704'),
  withOptions('-D /tmp', '42601'),
  withOptions('-o x', '42601'),
];
