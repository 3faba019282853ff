// Runs the example with a wallet that has code. "contract" is a contract of our development chain, used through viem's
// smart account; "delegated" is an account that runs that contract's code (EIP-7702); "undeployed" is a smart account whose
// contract is not deployed. RPC_URL is the chain, ARTIFACT the contract, BOXOFFICE_PRIVATE_KEY an account with native coin.
import { readFileSync } from "node:fs";
import { createPublicClient, createWalletClient, encodeFunctionData, getContractAddress, http, maxUint256, parseAbi, parseEther } from "viem";
import { entryPoint08Abi, entryPoint08Address, toSmartAccount } from "viem/account-abstraction";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { buy } from "../../examples/typescript/build/buy.js";

const permit2 = "0x000000000022D473030F116dDEE9F6B43aC78BA3";
const token = process.env.ASSET;
const tokenAbi = parseAbi(["function mint(address, uint256)", "function approve(address, uint256)"]);
const { abi, bytecode } = JSON.parse(readFileSync(process.env.ARTIFACT, "utf8"));

const transport = http(process.env.RPC_URL);
const reader = createPublicClient({ transport, pollingInterval: 100 });
const chain = { id: await reader.getChainId(), name: "dev", nativeCurrency: { name: "", symbol: "", decimals: 18 }, rpcUrls: { default: { http: [] } } };
const client = createPublicClient({ chain, transport, pollingInterval: 100 });
const sender = (account) => createWalletClient({ account, chain, transport });
const mined = async (hash) => {
  const receipt = await client.waitForTransactionReceipt({ hash });
  if (receipt.status !== "success") throw new Error(`transaction ${hash} failed`);
  return receipt;
};

const rich = sender(privateKeyToAccount(process.env.BOXOFFICE_PRIVATE_KEY));
const owner = privateKeyToAccount(generatePrivateKey());
await mined(await rich.sendTransaction({ to: owner.address, value: parseEther("1") }));
const fund = async (wallet) => mined(await rich.writeContract({ address: token, abi: tokenAbi, functionName: "mint", args: [wallet, parseEther("100")] }));
const deploy = async () => (await mined(await sender(owner).deployContract({ abi, bytecode, args: [owner.address] }))).contractAddress;
const approve = { abi: tokenAbi, functionName: "approve", args: [permit2, maxUint256] };

// Nothing is sent to a bundler, so this needs only what signs.
const smartAccount = (address) =>
  toSmartAccount({
    client,
    entryPoint: { abi: entryPoint08Abi, address: entryPoint08Address, version: "0.8" },
    getAddress: async () => address,
    getFactoryArgs: async () => ({ factory: owner.address, factoryData: "0x" + "00".repeat(36) }),
    signTypedData: (data) => owner.signTypedData(data),
  });

const wallets = {
  async contract() {
    const wallet = await deploy();
    await fund(wallet);
    await mined(await sender(owner).writeContract({ address: wallet, abi, functionName: "execute", args: [token, 0n, encodeFunctionData(approve)] }));
    return smartAccount(wallet);
  },
  async delegated() {
    const contractAddress = await deploy();
    await fund(owner.address);
    await mined(await sender(owner).writeContract({ address: token, ...approve }));
    const authorization = await sender(owner).signAuthorization({ contractAddress, executor: "self" });
    await mined(await sender(owner).sendTransaction({ to: owner.address, authorizationList: [authorization] }));
    if (!(await client.getCode({ address: owner.address }))?.startsWith("0xef0100")) throw new Error("the account has no delegate");
    return owner;
  },
  async undeployed() {
    const wallet = getContractAddress({ from: owner.address, nonce: 1_000n });
    await fund(wallet);
    return smartAccount(wallet);
  },
};
await buy(await wallets[process.argv[2]]());
