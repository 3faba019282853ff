// Buys a job and reads it through the generated types: the compiler checks every body, parameter and status below against
// the served OpenAPI document. Prints the order's status and exits 0 if the order is admitted.
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import canonicalize from "canonicalize";
import createClient from "openapi-fetch";
import { privateKeyToAccount } from "viem/accounts";
import type { components, paths } from "./contract.js";

type Challenge = components["schemas"]["Challenge"];

const { BOXOFFICE_URL: baseUrl, BOXOFFICE_PRIVATE_KEY: key, ASSET: asset, MAX_AMOUNT: maxAmountPerPayment } = process.env;
if (!baseUrl || !key || !asset || !maxAmountPerPayment) throw new Error("a variable is missing in the environment");
const wallet = privateKeyToAccount(key as `0x${string}`);
const client = new x402Client().register("eip155:*", new ExactEvmScheme(wallet));
client.setSpendControls({ allowedAssets: [{ network: "eip155:*", asset, maxAmountPerPayment }] });
const x402 = new x402HTTPClient(client);

const api = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${randomBytes(32).toString("hex")}` } });

/** Returns the body of a successful response. */
function good<T>({ data, error }: { data?: T | undefined; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const { quoteApproval } = good(await api.GET("/requests/capabilities")).payment;

// A quote, the same quote again by its request key, and the order.
const request = { action: "job.open", input: { objective: "Name three uses of a buoy" }, requestKey: randomUUID() } as const;
const { created, order } = good(await api.POST("/requests/quote", { body: request }));
const again = good(await api.POST("/requests/quote", { body: request }));
if (!created || again.created || again.order.id !== order.id) throw new Error("the second request did not return the first quote");
const params = { path: { id: order.id } };
const before = good(await api.GET("/requests/{id}", { params }));
if (before.status !== "quoted" || before.payment !== null || before.admission !== null) throw new Error(`the order is ${before.status}`);

// The challenge is the body of the 402, which openapi-fetch returns as an error.
const offer = await api.POST("/requests/{id}/submit", { params, body: {} });
if (offer.response.status !== 402 || !offer.error || !("accepts" in offer.error)) throw new Error("no challenge");
const challenge: Challenge = offer.error;

const payload = await client.createPaymentPayload(x402.getPaymentRequiredResponse((name) => offer.response.headers.get(name)));
const { quote } = challenge;
const quoteSignature = await wallet.signTypedData({
  ...quoteApproval,
  message: {
    resource: challenge.resourceUrl,
    requesterScopeHash: `0x${challenge.requesterScopeHash}`,
    quoteId: quote.id,
    quoteHash: `0x${quote.quoteHash}`,
    paymentHash: `0x${createHash("sha256").update(canonicalize(payload)!).digest("hex")}`,
    action: quote.action,
    asset: quote.payment.asset,
    amount: BigInt(quote.payment.amount),
    payTo: quote.payment.payTo,
    expiresAt: BigInt(quote.expiresAt),
  },
});
const header = x402.encodePaymentSignatureHeader(payload)["PAYMENT-SIGNATURE"];
if (!header) throw new Error("the client returned no payment");

let status = good(await api.POST("/requests/{id}/submit", { params: { ...params, header: { "PAYMENT-SIGNATURE": header } }, body: { quoteSignature } }));
while (status.status === "payment_pending" || status.status === "admission_pending") {
  await new Promise((wake) => setTimeout(wake, 500));
  status = good(await api.GET("/requests/{id}", { params }));
}

// The job, in the filtered list and alone.
if (status.admission?.result.kind !== "job") throw new Error(`the order is ${status.status}`);
const { id } = status.admission.result;
const { count, jobs } = good(await api.GET("/jobs", { params: { query: { template: "research", limit: 10 } } }));
const job = good(await api.GET("/jobs/{id}", { params: { path: { id } } }));
if (count !== 1 || jobs[0]?.id !== job.id || job.nodes?.[0]?.id !== "main") throw new Error("this is not the job that was bought");

// All errors have one schema.
const unknown = await api.GET("/jobs/{id}", { params: { path: { id: order.id } } });
if (unknown.error?.error !== "not_found") throw new Error("an unknown job is not an error");

console.log(JSON.stringify(status));

/** What the document does not allow does not compile. */
export const refused = [
  // @ts-expect-error there is no such action
  () => api.POST("/requests/quote", { body: { ...request, action: "job.close" } }),
  // @ts-expect-error the size of a panel is a number
  () => api.POST("/requests/quote", { body: { action: "oracle.request", input: { question: "So?", panelSize: "5" }, requestKey: randomUUID() } }),
  // @ts-expect-error jobs have no such state
  () => api.GET("/jobs", { params: { query: { state: "done" } } }),
];
