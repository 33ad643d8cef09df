/**
 * The script of the pages. Without it they can be read; with it their examples name the host that served them, and can be copied,
 * chosen by language, filtered and run. The key is kept in sessionStorage: only this tab has it, until it is closed.
 */
export const SCRIPT = String.raw`'use strict';
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const stored = (name) => { try { return sessionStorage.getItem(name) ?? ''; } catch { return ''; } };
  const store = (name, value) => { try { sessionStorage.setItem(name, value); } catch {} };

  const [host, port] = (document.body.dataset.wire || '|6432').split('|');
  const wireHost = host || location.hostname;
  const bare = wireHost.replace(/^\[|\]$/g, '');
  const url = bare.includes(':') ? '[' + bare + ']' : bare;
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const text = node.data
      .replaceAll('http://127.0.0.1:8080', location.origin)
      .replaceAll('127.0.0.1:6432', url + ':' + port)
      .replaceAll('-h 127.0.0.1 -p 6432', '-h ' + bare + ' -p ' + port);
    if (text !== node.data) node.data = text;
  }

  for (const block of all('.code')) {
    const button = make('button', { type: 'button', textContent: 'Copy' });
    button.addEventListener('click', async () => {
      const code = block.querySelector('code');
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        document.execCommand('copy');
      }
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
    block.append(button);
  }

  const choosers = [];
  const choose = (language) => { for (const chooser of choosers) chooser(language); };
  all('.samples').forEach((samples, number) => {
    const panels = all('.sample', samples);
    const list = make('div');
    list.setAttribute('role', 'tablist');
    list.setAttribute('aria-label', 'Language of the example');
    const tabs = panels.map((panel, index) => {
      const tab = make('button', { type: 'button', textContent: panel.dataset.language, id: 'tab-' + number + '-' + index });
      tab.setAttribute('role', 'tab');
      panel.setAttribute('role', 'tabpanel');
      panel.setAttribute('aria-labelledby', tab.id);
      panel.querySelector('.kind').hidden = true;
      tab.addEventListener('click', () => {
        const top = tab.getBoundingClientRect().top;
        choose(panel.dataset.language);
        scrollBy(0, tab.getBoundingClientRect().top - top);
        store('postern.language', panel.dataset.language);
      });
      tab.addEventListener('keydown', ({ key }) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
        if (step === undefined) return;
        const next = tabs[(index + step + tabs.length) % tabs.length];
        next.click();
        next.focus();
      });
      list.append(tab);
      return tab;
    });
    samples.prepend(list);
    choosers.push((language) => {
      const chosen = Math.max(0, panels.findIndex((panel) => panel.dataset.language === language));
      panels.forEach((panel, index) => {
        panel.hidden = index !== chosen;
        tabs[index].setAttribute('aria-selected', String(index === chosen));
        tabs[index].tabIndex = index === chosen ? 0 : -1;
      });
    });
  });
  choose(stored('postern.language') || 'curl');

  const menu = document.querySelector('.menu');
  const narrow = matchMedia('(max-width: 59.99rem)');
  const details = menu.querySelector('details');
  if (narrow.matches) details.open = false;
  menu.addEventListener('click', ({ target }) => { if (narrow.matches && target.closest('a')) details.open = false; });
  const tools = menu.querySelector('.tools');

  const sections = all('main [data-section]');
  if (sections.length > 0) {
    const words = new Map(sections.map((section) => [section, section.textContent.toLowerCase()]));
    const filter = make('input', { type: 'search', placeholder: 'query, 409, timeout …' });
    filter.addEventListener('input', () => {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const section of sections) {
        section.hidden = !wanted.every((word) => words.get(section).includes(word));
        for (const link of all('a[href="#' + section.id + '"]', menu)) link.parentElement.hidden = section.hidden;
      }
      for (const group of all('[data-group]')) group.hidden = all('[data-section]', group).every(({ hidden }) => hidden);
    });
    tools.append(make('label', {}, 'Filter', filter));
  }

  const runnable = all('main [data-method]');
  if (runnable.length > 0) {
    const key = make('input', { type: 'password', autocomplete: 'off', spellcheck: false, placeholder: 'pst_…', value: stored('postern.key') });
    key.addEventListener('input', () => store('postern.key', key.value.trim()));
    const form = make('form', {}, make('label', {}, 'API key, kept in this tab', key));
    form.addEventListener('submit', (event) => event.preventDefault());
    tools.append(form);
    for (const section of runnable) section.querySelector('.samples').after(runner(section, key));
  }

  function runner({ dataset, id }, key) {
    const path = make('input', { className: 'path', value: dataset.path, spellcheck: false });
    const body = dataset.body === undefined ? undefined : make('textarea', { value: dataset.body, rows: Math.min(16, dataset.body.split('\n').length + 1), spellcheck: false });
    const button = make('button', { type: 'button', textContent: 'Run ' + dataset.method });
    const status = make('p', { className: 'muted' });
    status.setAttribute('role', 'status');
    const reply = make('code');
    const shown = make('pre', { hidden: true, tabIndex: 0 }, reply);
    button.addEventListener('click', async () => {
      if (dataset.ask && !confirm(dataset.ask)) return;
      button.disabled = true;
      status.className = 'muted';
      status.textContent = 'Running …';
      try {
        const headers = {};
        if (dataset.key !== undefined) headers.authorization = 'Bearer ' + key.value.trim();
        if (body !== undefined) headers['content-type'] = 'application/json';
        const began = performance.now();
        const response = await fetch(new URL(path.value, location.origin).pathname + new URL(path.value, location.origin).search, { method: dataset.method, headers, body: body?.value, credentials: 'omit' });
        const text = await response.text();
        status.className = response.ok ? 'good' : 'bad';
        status.textContent = response.status + ' ' + response.statusText + ' in ' + Math.round(performance.now() - began) + ' ms';
        let parsed;
        try { parsed = JSON.parse(text); } catch {}
        reply.textContent = (parsed === undefined ? text : JSON.stringify(parsed, null, 2)).slice(0, 200000);
        shown.hidden = reply.textContent === '';
        if (response.ok && (id === 'signUp' || id === 'rotateKey') && typeof parsed?.apiKey === 'string') {
          key.value = parsed.apiKey;
          store('postern.key', key.value);
          status.textContent += '; the new key is kept in this tab';
        }
      } catch (error) {
        status.className = 'bad';
        status.textContent = 'The request failed: ' + error.message;
      }
      button.disabled = false;
    });
    const fields = [make('label', {}, 'Path', path), ...(body === undefined ? [] : [make('label', {}, 'Body', body)])];
    const box = make('details', { className: 'run' }, make('summary', { textContent: 'Run it here' }), ...fields, button, status, shown);
    return box;
  }
})();
`;
