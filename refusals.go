package boxoffice

// RefusalReason says why an action refused an input: the reason beside
// action_refused. A value, once published, does not change. Where the operator's
// judge refused, there is none.
type RefusalReason string

// The reasons of refusals.
const (
	RefusedDuplicateNode       RefusalReason = "duplicate_node"
	RefusedUnknownNode         RefusalReason = "unknown_node"
	RefusedWorkflowCycle       RefusalReason = "workflow_cycle"
	RefusedNotAChain           RefusalReason = "not_a_chain"
	RefusedLaunchesUnavailable RefusalReason = "launches_unavailable"
	RefusedChainNotListed      RefusalReason = "chain_not_listed"
	RefusedKindNotOffered      RefusalReason = "kind_not_offered"
	RefusedPairingNotOffered   RefusalReason = "pairing_not_offered"
	RefusedRepository          RefusalReason = "repository_refused"
	RefusedOriginalNotFound    RefusalReason = "original_not_found"
	RefusedAmountTooLarge      RefusalReason = "amount_too_large"
)

// RefusalInfo is the row of a refusal's reason in the table of refusals.
type RefusalInfo struct {
	Reason  RefusalReason
	Meaning string
}

// Refusals is the table of the reasons beside action_refused. docs/errors.md is
// generated from it.
var Refusals = []RefusalInfo{
	{RefusedDuplicateNode, "Two nodes of the workflow have one id."},
	{RefusedUnknownNode, "A node comes after one that the workflow does not have."},
	{RefusedWorkflowCycle, "Nodes of the workflow wait for each other."},
	{RefusedNotAChain, "The workflow's shape is chain and its nodes are not one after the other."},
	{RefusedLaunchesUnavailable, "The service launches on no chain now."},
	{RefusedChainNotListed, "Capabilities do not list the launch's chain."},
	{RefusedKindNotOffered, "The chain does not offer this kind of launch."},
	{RefusedPairingNotOffered, "The chain does not offer this pairing for this kind of launch."},
	{RefusedRepository, "Nothing is delivered to that repoUrl; limits.repositoryHosts of capabilities lists the hosts."},
	{RefusedOriginalNotFound, "There is no such job or schedule, or it belongs to another token."},
	{RefusedAmountTooLarge, "The runs cost more than a token can move."},
}
