import { computed, effect, type Signal, signal } from '@preact/signals';
import type { EditorHandle } from '../../editor/editor-handle.ts';
import { keepText, keptText, lockedBecause } from '../../session/session.ts';
import { goTo } from '../../shell/route.ts';
import type { Parameter, Run } from './run-request.ts';

/** The saved query that a tab shows, and which version of it. */
export interface SavedLink {
  readonly name: string;
  readonly description: string | null;
  readonly sql: string;
  readonly tag: string | undefined;
}

/** One text with what came of it. */
export interface QueryTab {
  readonly id: string;
  readonly number: number;
  readonly text: Signal<string>;
  readonly params: Signal<readonly Parameter[]>;
  readonly saved: Signal<SavedLink | undefined>;
  readonly run: Signal<Run | undefined>;
}

interface KeptTab {
  readonly text: string;
  readonly params: readonly Parameter[];
  readonly saved?: SavedLink;
}

interface Kept {
  readonly tabs: readonly KeptTab[];
  readonly current: number;
  readonly settings: Partial<SqlSettings>;
}

interface SqlSettings {
  readonly isReadOnly: boolean;
  /** Milliseconds; empty: what the server does by default. */
  readonly timeLimit: string;
  readonly isLibraryOpen: boolean;
  /** The part of the height that the editor has, in percent. */
  readonly editorShare: number;
}

const NAME = 'sql';
const KEEP_AFTER_MS = 300;
const WIDE_PX = 1_400;

let lastNumber = 0;

function newTab({ text, params, saved }: Partial<KeptTab> = {}): QueryTab {
  lastNumber += 1;
  return {
    id: `query-${lastNumber}`,
    number: lastNumber,
    text: signal(text ?? ''),
    params: signal(params ?? []),
    saved: signal(saved),
    run: signal<Run | undefined>(undefined),
  };
}

const kept = readKept();

/** At least one. */
export const tabs = signal<readonly QueryTab[]>((kept?.tabs ?? [{}]).map(newTab));
const currentId = signal((tabs.peek()[kept?.current ?? 0] ?? tabs.peek()[0])?.id);
export const currentTab = computed(() => tabs.value.find(({ id }) => id === currentId.value) ?? tabs.value[0] ?? newTab());
export const settings = signal<SqlSettings>({
  isReadOnly: false,
  timeLimit: '',
  isLibraryOpen: innerWidth >= WIDE_PX,
  editorShare: 40,
  ...kept?.settings,
});
/** The editors that are on the screen, by the id of their tab. */
export const editors = new Map<string, EditorHandle>();
/** Where the cursor was in those that are not. */
export const selections = new Map<string, ReturnType<EditorHandle['selection']>>();

export function change(changed: Partial<SqlSettings>): void {
  settings.value = { ...settings.peek(), ...changed };
}

export function showTab(id: string): void {
  currentId.value = id;
}

export function addTab(content: Partial<KeptTab> = {}): QueryTab {
  const tab = newTab(content);
  tabs.value = [...tabs.peek(), tab];
  showTab(tab.id);
  return tab;
}

/** What runs in it is canceled. */
export function closeTab(tab: QueryTab): void {
  tab.run.peek()?.cancel();
  editors.delete(tab.id);
  selections.delete(tab.id);
  const all = tabs.peek();
  const index = all.indexOf(tab);
  const left = all.filter((one) => one !== tab);
  const next = left[Math.min(index, left.length - 1)] ?? newTab();
  tabs.value = left.length === 0 ? [next] : left;
  if (currentId.peek() === tab.id) showTab(next.id);
}

/** Shows a text in a tab where nothing is lost: the one that has it already, an empty one, or a new one. */
export function openText(content: Partial<KeptTab> & { readonly text: string }): void {
  const all = tabs.peek();
  const same = all.find(({ text, saved }) => text.peek() === content.text && saved.peek()?.name === content.saved?.name);
  const free = currentTab.peek().text.peek().trim() === '' ? currentTab.peek() : all.find(({ text }) => text.peek().trim() === '');
  const tab = same ?? free;
  if (tab === undefined) {
    addTab(content);
    return;
  }
  tab.text.value = content.text;
  tab.saved.value = content.saved;
  tab.params.value = content.params ?? tab.params.peek();
  showTab(tab.id);
}

/** Goes to the SQL screen with this text. Nothing that is there is lost. */
export function openInEditor(sql: string): void {
  openText({ text: sql });
  goTo('sql');
}

const SHOWN_MAX_CHARACTERS = 28;

/** Its saved name, else how its text begins. */
export function titleOf({ saved, text, number }: QueryTab): string {
  if (saved.value !== undefined) return saved.value.name;
  const beginning = text.value
    .slice(0, 400)
    .trim()
    .replace(/^(--\s*|\/\*\s*)/, '');
  const [line = ''] = beginning.split('\n');
  if (line === '') return `Query ${number}`;
  return line.length > SHOWN_MAX_CHARACTERS ? `${line.slice(0, SHOWN_MAX_CHARACTERS - 1)}…` : line;
}

let keeping: ReturnType<typeof setTimeout> | undefined;
let keepNow = () => {};

effect(() => {
  const all = tabs.value;
  const content: Kept = {
    tabs: all.map(({ text, params, saved }) => ({
      text: text.value,
      params: params.value,
      ...(saved.value === undefined ? {} : { saved: saved.value }),
    })),
    current: all.findIndex(({ id }) => id === currentId.value),
    settings: settings.value,
  };
  // Whether texts are kept is chosen when a key is entered.
  void lockedBecause.value;
  clearTimeout(keeping);
  keeping = setTimeout(() => keep(content), KEEP_AFTER_MS);
  keepNow = () => keep(content);
});

addEventListener('pagehide', () => keepNow());

function keep(content: Kept): void {
  clearTimeout(keeping);
  keepText(NAME, JSON.stringify(content));
}

function readKept(): Kept | undefined {
  try {
    return JSON.parse(keptText(NAME) ?? 'null') ?? undefined;
  } catch {
    return undefined;
  }
}

/** The download that goes on, also while another screen is shown. */
export const currentDownload = signal<{ readonly bytes: number; readonly cancel: () => void } | undefined>(undefined);

/** What the dialog asks for before a query is saved. */
type SaveQuestion =
  | { readonly kind: 'name'; readonly tab: QueryTab }
  | { readonly kind: 'conflict'; readonly tab: QueryTab; readonly theirs: SavedLink };

export const saveQuestion = signal<SaveQuestion | undefined>(undefined);
