/*
 * What modules of the console ask of a page while they are loaded. Tests of their functions run in Node, without one; those of what is
 * seen run in Chromium.
 */
const page = {
  innerWidth: 1280,
  location: { hash: '', href: 'http://localhost/console/', pathname: '/console/', search: '' },
  document: { visibilityState: 'visible', addEventListener() {}, documentElement: { dataset: {} } },
  addEventListener() {},
};
for (const [name, value] of Object.entries(page))
  if (!(name in globalThis)) Object.defineProperty(globalThis, name, { value, configurable: true });
