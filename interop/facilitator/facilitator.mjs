// The official facilitator as an HTTP server: /verify, /settle and /supported for the scheme exact on one chain. Prints its
// address when it is ready, and exits when its standard input is closed.
import { serve } from "@hono/node-server";
import { x402Facilitator } from "@x402/core/facilitator";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import { Hono } from "hono";
import { createWalletClient, defineChain, http, publicActions } from "viem";
import { privateKeyToAccount } from "viem/accounts";

const { RPC_URL, CHAIN_ID, PRIVATE_KEY, CONFIRMATION_MS } = process.env;
const chain = defineChain({
  id: Number(CHAIN_ID), name: "development", nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [RPC_URL] } },
});
const account = privateKeyToAccount(PRIVATE_KEY);
const wallet = createWalletClient({ account, chain, transport: http(), pollingInterval: 100 }).extend(publicActions);
const signer = toFacilitatorEvmSigner({ ...wallet, address: account.address }, { confirmationTimeoutMs: Number(CONFIRMATION_MS) });
const facilitator = new x402Facilitator().register(`eip155:${CHAIN_ID}`, new ExactEvmScheme(signer));

const app = new Hono();
app.get("/supported", (c) => c.json(facilitator.getSupported()));
for (const call of ["verify", "settle"]) {
  app.post(`/${call}`, async (c) => {
    const { paymentPayload, paymentRequirements } = await c.req.json();
    try {
      const answer = await facilitator[call](paymentPayload, paymentRequirements);
      console.error(call, JSON.stringify(answer));
      return c.json(answer);
    } catch (error) {
      console.error(call, error.message);
      return c.json({ error: error.message }, 500);
    }
  });
}
serve({ fetch: app.fetch, hostname: "127.0.0.1", port: 0 }, ({ port }) => console.log(`http://127.0.0.1:${port}`));
process.stdin.on("end", () => process.exit()).resume();
