// Buys one job with @x402/fetch, which pays when a response is 402. The hook
// beneath it adds the approval. Prints the order's status; exits 0 if admitted.
import { randomBytes, randomUUID } from "node:crypto";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { approving } from "./hook.js";

const { BOXOFFICE_URL: service, BOXOFFICE_PRIVATE_KEY: key, ASSET: asset, MAX_AMOUNT: maxAmountPerPayment } = process.env;
if (!service || !key || !asset || !maxAmountPerPayment) {
  throw new Error("BOXOFFICE_URL, BOXOFFICE_PRIVATE_KEY, ASSET and MAX_AMOUNT are not all set");
}
const wallet = privateKeyToAccount(key as `0x${string}`);
const authorization = `Bearer ${process.env.BOXOFFICE_TOKEN ?? randomBytes(32).toString("hex")}`;

const client = new x402Client().register("eip155:*", new ExactEvmScheme(wallet));
client.setSpendControls({ allowedAssets: [{ network: "eip155:*", asset, maxAmountPerPayment }] });

const { payment: how } = await (await fetch(`${service}/requests/capabilities`)).json();
const paid = wrapFetchWithPayment(
  approving(fetch, wallet, how.quoteApproval, ({ quote, input }) => {
    console.error("buying", quote.action, input, "for", quote.payment.amount); // throw here to approve nothing
  }),
  client,
);

const quoted = await fetch(`${service}/requests/quote`, {
  method: "POST",
  headers: { authorization },
  body: JSON.stringify({ action: "job.open", input: { objective: "Name three uses of a foghorn" }, requestKey: randomUUID() }),
});
const { order } = await quoted.json();

// The first answer is 402; the wrapper signs the payment, the hook the approval.
let answer = await paid(`${service}/requests/${order.id}/submit`, { method: "POST", headers: { authorization } });
let status = await answer.json();
while (answer.ok && ["payment_pending", "admission_pending"].includes(status.status)) {
  await new Promise((wake) => setTimeout(wake, 500));
  answer = await fetch(`${service}/requests/${order.id}`, { headers: { authorization } });
  status = await answer.json();
}
console.log(JSON.stringify(status));
process.exitCode = status.status === "admitted" ? 0 : 1;
