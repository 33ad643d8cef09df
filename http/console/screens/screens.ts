import type { ComponentType } from 'preact';
import type { IconName } from '../parts/icon.tsx';

/** A screen, its place in the navigation, and where its code is. */
export interface Screen {
  /** In the address: `#/tables`. */
  readonly path: string;
  readonly title: string;
  readonly group: 'Data' | 'Operation' | 'Access';
  readonly icon: IconName;
  /** `rest` is what stands in the address behind the path. */
  readonly load: () => Promise<ComponentType<{ readonly rest: string }>>;
}

export const FIRST_SCREEN = 'sql';

/** In the order of the navigation. */
export const SCREENS: readonly Screen[] = [
  {
    path: 'sql',
    title: 'SQL',
    group: 'Data',
    icon: 'sql',
    load: async () => (await import('./sql/sql-screen.tsx')).SqlScreen,
  },
  {
    path: 'tables',
    title: 'Tables',
    group: 'Data',
    icon: 'table',
    load: async () => (await import('./tables/tables-screen.tsx')).TablesScreen,
  },
  {
    path: 'schema',
    title: 'Schema',
    group: 'Data',
    icon: 'schema',
    load: async () => (await import('./schema/schema-screen.tsx')).SchemaScreen,
  },
  {
    path: 'migrations',
    title: 'Migrations',
    group: 'Data',
    icon: 'steps',
    load: async () => (await import('./migrations/migrations-screen.tsx')).MigrationsScreen,
  },
  {
    path: 'sessions',
    title: 'Sessions',
    group: 'Operation',
    icon: 'session',
    load: async () => (await import('./sessions/sessions-screen.tsx')).SessionsScreen,
  },
  {
    path: 'insights',
    title: 'Insights',
    group: 'Operation',
    icon: 'bulb',
    load: async () => (await import('./insights/insights-screen.tsx')).InsightsScreen,
  },
  {
    path: 'usage',
    title: 'Usage',
    group: 'Operation',
    icon: 'chart',
    load: async () => (await import('./usage/usage-screen.tsx')).UsageScreen,
  },
  {
    path: 'audit',
    title: 'Audit',
    group: 'Operation',
    icon: 'shield',
    load: async () => (await import('./audit/audit-screen.tsx')).AuditScreen,
  },
  {
    path: 'connect',
    title: 'Connect',
    group: 'Access',
    icon: 'plug',
    load: async () => (await import('./connect/connect-screen.tsx')).ConnectScreen,
  },
  {
    path: 'keys',
    title: 'Keys',
    group: 'Access',
    icon: 'key',
    load: async () => (await import('./keys/keys-screen.tsx')).KeysScreen,
  },
];
