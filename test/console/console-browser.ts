/** Opens Chromium for the console, and notes everything that a page of it must never do. */
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { installPrograms } from '../servers/system.ts';

/** A browser with one page. `violations`: script errors, dialogs, and what the policy of the page refused. */
export interface ConsoleBrowser {
  readonly browser: Browser;
  readonly context: BrowserContext;
  readonly page: Page;
  readonly violations: readonly string[];
}

/** Nothing is drawn for a person, so a graphics processor is not imitated. */
const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-extensions', '--disable-background-networking'];

/** Starts Chromium. */
export async function openConsoleBrowser(): Promise<ConsoleBrowser> {
  installPrograms([['chromium', 'chromium']], () => undefined);
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ARGUMENTS });
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const violations: string[] = [];
  page.on('pageerror', (error) => violations.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => {
    violations.push('dialog');
    void dialog.dismiss();
  });
  page.on('console', (message) => {
    if (/content security policy|trusted/i.test(message.text())) violations.push(message.text());
  });
  return { browser, context, page, violations };
}
