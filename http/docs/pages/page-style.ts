/** Text has a contrast of 4.5 or more, and what can be operated one of 3, in both themes (WCAG 2.2, AA). */
export const STYLE = `
:root { color-scheme: light dark; --text: #1b1d21; --muted: #565b63; --back: #fff; --soft: #f2f4f7; --line: #d5d9df; --edge: #767c86; --accent: #0b57d0; --bad: #b3261e; --good: #146c2e }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --muted: #a9afb8; --back: #14161a; --soft: #1f2329; --line: #383e47; --edge: #8b919b; --accent: #8ab4f8; --bad: #f2b8b5; --good: #8fd7a3 } }
* { box-sizing: border-box }
html { scroll-padding-top: 1rem }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--back); overflow-wrap: anywhere }
a { color: var(--accent) } a:focus-visible, button:focus-visible, input:focus-visible, textarea:focus-visible, summary:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
.skip { position: absolute; left: -999px } .skip:focus { left: .5rem; top: .5rem; background: var(--back); padding: .5rem }
.menu { padding: 1rem; border-bottom: 1px solid var(--line) } .menu > details > summary { font-weight: 600 } .menu ul { list-style: none; margin: .25rem 0 1rem; padding: 0 } .menu li { margin: .1rem 0; font-size: .9rem; line-height: 1.4 } .menu a { text-decoration: none; display: block; padding: .15rem .25rem; border-radius: 4px } .menu a:hover { background: var(--soft) } .menu a[aria-current] { color: var(--text); font-weight: 600 } .menu h2 { font-size: .8rem; margin: .75rem 0 .1rem; color: var(--muted); border: 0; padding: 0; text-transform: uppercase; letter-spacing: .04em }
main { padding: 1rem; min-width: 0; max-width: 54rem }
h1, h2, h3, h4 { line-height: 1.25 } h2 { margin-top: 3rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line) } h3 { margin-top: 2.25rem } h4 { margin: 1.25rem 0 .25rem } h3 code { font-size: 1em; font-weight: 600 } li > p { margin: .25rem 0 }
code, pre, textarea, .path { font: .875em/1.5 ui-monospace, monospace } pre { margin: 0; background: var(--soft); padding: .75rem 1rem; overflow-x: auto; border-radius: 6px; overflow-wrap: normal } pre code { font-size: .85rem }
.code { position: relative; margin: .5rem 0 1rem } .code button { position: absolute; top: .35rem; right: .35rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .92em } td, th { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); overflow-wrap: normal; min-width: 6rem } .muted, .kind { color: var(--muted) } .kind { margin: .75rem 0 0; font-size: .85rem }
summary { cursor: pointer; margin: .5rem 0 } label { display: block; font-size: .85rem; color: var(--muted); margin-top: .5rem }
input, textarea { width: 100%; color: var(--text); background: var(--back); border: 1px solid var(--edge); border-radius: 4px; padding: .35rem .5rem; font-size: .9rem }
button { font: inherit; font-size: .85rem; color: var(--text); background: var(--back); border: 1px solid var(--edge); border-radius: 4px; padding: .15rem .6rem; cursor: pointer; min-height: 1.75rem } button[aria-selected=true] { background: var(--text); color: var(--back); border-color: var(--text) }
[role=tablist] { display: flex; flex-wrap: wrap; gap: .35rem; margin-top: 1rem } .run { border: 1px solid var(--line); border-radius: 6px; padding: .25rem .75rem .75rem; margin: .5rem 0 1rem } .run button { margin-top: .5rem } .run p { margin: .25rem 0 0 } .bad { color: var(--bad) } .good { color: var(--good) }
.error h3 { margin: 1.5rem 0 .25rem } .error p { margin: .25rem 0 } :target > h3, h2:target, h3:target { background: var(--soft) }
@media (max-width: 40rem) { .code pre { padding-top: 2.5rem } table, tr, td { display: block } tr { border-bottom: 1px solid var(--line); padding: .35rem 0 } td { border: 0; padding: .05rem 0; overflow-wrap: anywhere } th { display: none } }
[hidden] { display: none !important }
@media (min-width: 60rem) { body { display: grid; grid-template-columns: 18rem minmax(0, 1fr) } .menu { position: sticky; top: 0; height: 100vh; overflow-y: auto; border-bottom: 0; border-right: 1px solid var(--line) } main { padding: 1rem 2rem 6rem } }
`;
