// Opens the service in a browser as a person does, and from pages of another origin. Exits 0 if every check passed.
import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const { BOXOFFICE_URL: service, CHROMIUM: executablePath, SCREENSHOT: screenshot } = process.env;
const profile = await mkdtemp(join(tmpdir(), "boxoffice-browser-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const elsewhere = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<!doctype html><title>Elsewhere</title>"));
elsewhere.listen(0, "127.0.0.1");
await once(elsewhere, "listening");

// What a script of a page does: the status of its fetch, or "blocked".
const tried = (page, ...requests) =>
  page.evaluate(
    (requests) =>
      Promise.all(
        requests.map(async ([address, options]) => {
          try {
            const answer = await fetch(address, options);
            return answer.type === "opaque" ? "opaque" : answer.status;
          } catch {
            return "blocked";
          }
        }),
      ),
    requests,
  );

try {
  const headers = { authorization: `Bearer ${randomBytes(32).toString("hex")}` };
  const quote = { method: "POST", body: JSON.stringify({ action: "job.open", input: { objective: "Look" }, requestKey: randomUUID() }) };

  // A person opens the root and follows both links.
  const page = await browser.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error" && !message.location().url.endsWith("/favicon.ico")) complaints.push(message.text());
  });
  page.on("request", (request) => request.url().startsWith(`${service}/`) || complaints.push(`asked ${request.url()}`));
  const front = await page.goto(`${service}/`);
  assert.equal(front.status(), 200);
  assert.equal(await page.locator("h1").innerText(), "Boxoffice");
  assert.equal(await page.locator("td:first-child").count(), 7);
  assert.equal(await page.locator("table").evaluate((table) => getComputedStyle(table).borderCollapse), "collapse", "the style is blocked");
  await page.emulateMedia({ colorScheme: "dark" });
  assert.equal(await page.locator("body").evaluate((body) => getComputedStyle(body).color), "rgb(255, 255, 255)", "dark text where it is dark");
  await page.emulateMedia({ colorScheme: "light" });
  if (screenshot) await page.screenshot({ path: screenshot });
  for (const [link, member] of [["requests/capabilities", "actions"], ["openapi.json", "paths"]]) {
    await page.goto(`${service}/`);
    const [opened] = await Promise.all([page.waitForResponse(`${service}/${link}`), page.getByRole("link", { name: link }).click()]);
    assert.equal(opened.status(), 200);
    await page.waitForURL(`${service}/${link}`);
    assert.ok(member in JSON.parse(await page.locator("pre").innerText()), `${link} does not show ${member}`);
  }
  assert.deepEqual(complaints, []);

  // A script of the service's own origin is a requester like any other.
  assert.deepEqual(await tried(page, ["/requests/quote", { ...quote, headers }], ["/jobs", { headers }], ["/jobs", {}]), [201, 200, 401]);

  // One of another origin reads the free documents and nothing else.
  await page.goto(`http://localhost:${elsewhere.address().port}/`);
  assert.deepEqual(
    await tried(page, [`${service}/openapi.json`], [`${service}/requests/capabilities`], [`${service}/requests/capabilities`, { headers }]),
    [200, 200, 200],
  );
  assert.deepEqual(
    await tried(page, [`${service}/jobs`, { headers }], [`${service}/requests/quote`, { ...quote, headers }], [`${service}/requests/quote`, quote]),
    ["blocked", "blocked", "blocked"],
  );
  const refused = page.waitForResponse((answer) => answer.request().method() === "POST");
  assert.deepEqual(await tried(page, [`${service}/requests/quote`, { ...quote, mode: "no-cors" }]), ["opaque"]);
  assert.equal((await refused).status(), 403);
  const [posted] = await Promise.all([
    page.waitForNavigation(),
    page.evaluate((action) => {
      const form = Object.assign(document.createElement("form"), { method: "post", enctype: "text/plain", action });
      document.body.append(form);
      form.submit();
    }, `${service}/requests/quote`),
  ]);
  assert.equal(posted.status(), 403);
} finally {
  await browser.close();
  elsewhere.close();
  await rm(profile, { recursive: true, force: true });
}
