/** Lines on a square of 16 by 16. */
const PATHS = {
  arrow: 'M3 8h10M9 4l4 4-4 4',
  book: 'M3 3.5A1.5 1.5 0 0 1 4.5 2H13v10H4.5A1.5 1.5 0 0 0 3 13.5zM3 13.5A1.5 1.5 0 0 0 4.5 15H13v-3',
  bulb: 'M8 1.5a4.5 4.5 0 0 0-2.5 8.2V12h5V9.7A4.5 4.5 0 0 0 8 1.5zM6 14.5h4',
  chart: 'M2 14h12M4 11V8M7.5 11V4M11 11V6.5',
  check: 'M3 8.5l3.2 3.2L13 5',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.3 1.5',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M6 5.5h7.5v8H6zM3 10.5h-.5v-8H10V3',
  down: 'M4 6l4 4 4-4',
  download: 'M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10',
  edit: 'M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3z',
  eye: 'M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z',
  filter: 'M2 3h12l-4.7 5.6v4.2l-2.6 1.2V8.6z',
  fit: 'M2.5 6v-3.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10',
  function: 'M11 2.8c-2-.8-2.9.6-3.2 2.2l-1.2 6c-.3 1.6-1.2 3-3.2 2.2M5 6.5h5.5',
  key: 'M10.5 2.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM8 8.5L2.5 14M4.5 12l1.5 1.5',
  leave: 'M6.5 2.5h-4v11h4M6 8h7.5M10.5 5l3 3-3 3',
  list: 'M5.5 4H14M5.5 8H14M5.5 12H14M2.2 4h.1M2.2 8h.1M2.2 12h.1',
  lock: 'M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  minus: 'M3 8h10',
  moon: 'M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  play: 'M4.5 2.8v10.4L13 8z',
  plug: 'M6 2v3M10 2v3M4 5h8v3a4 4 0 0 1-8 0zM8 12v2.5',
  plus: 'M8 3v10M3 8h10',
  postern: 'M2.5 14.5V2.5h2v1.5h2V2.5h3v1.5h2V2.5h2v12M6 14.5V10a2 2 0 0 1 4 0v4.5',
  reload: 'M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3',
  right: 'M6 4l4 4-4 4',
  rotate: 'M2.5 7a5.5 5.5 0 0 1 10-2M13.5 2v3.2h-3.2M13.5 9a5.5 5.5 0 0 1-10 2M2.5 14v-3.2h3.2',
  schema: 'M2.5 2.5h4v3h-4zM9.5 6.5h4v3h-4zM2.5 10.5h4v3h-4zM6.5 4H8v8H6.5M8 8h1.5',
  search: 'M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3L14 14',
  session: 'M2 3h12v8H2zM5.5 14h5M8 11v3',
  shield: 'M8 1.8l5 1.7v4c0 3.2-2 5.6-5 6.7-3-1.1-5-3.5-5-6.7v-4zM5.8 8l1.6 1.6L10.4 6.5',
  sql: 'M2 3h12v10H2zM4.5 6l2 2-2 2M8 10h3',
  star: 'M8 2l1.8 3.8 4.2.5-3.1 2.9.8 4.1L8 11.3l-3.7 2 .8-4.1L2 6.3l4.2-.5z',
  steps: 'M2 13h4V9.5h4V6h4V2.5',
  stop: 'M4 4h8v8H4z',
  sun: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  table: 'M2 3h12v10H2zM2 6.5h12M6.5 6.5V13',
  theme: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 2v12M10.5 3v10M12.5 4.5v7',
  trash: 'M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9',
  type: 'M6 2.5C3.5 2.5 5.5 8 3 8c2.5 0 .5 5.5 3 5.5M10 2.5c2.5 0 .5 5.5 3 5.5-2.5 0-.5 5.5-3 5.5',
  upload: 'M8 10.5v-8M4.5 5.5L8 2l3.5 3.5M3 13.5h10',
  warning: 'M8 2.2L14.5 13.5h-13zM8 6.5v3.3M8 11.6v.1',
} as const;

export type IconName = keyof typeof PATHS;

/** Decoration only: whatever it stands on has words. */
export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
