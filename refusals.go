package boxoffice

// RefusalReason says why an action refused an input: the reason beside
// action_refused. A value, once published, does not change. A refusal of the
// operator's judge has none.
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

// Refusals returns the table of the reasons beside action_refused. docs/errors.md is
// generated from it.
func Refusals() []RefusalInfo {
	return []RefusalInfo{
		{RefusedDuplicateNode, "Two nodes of the workflow have the same id."},
		{RefusedUnknownNode, "A node names in after a node that the workflow does not have."},
		{RefusedWorkflowCycle, "Nodes of the workflow wait for each other in a circle."},
		{RefusedNotAChain, "The shape is chain, and the nodes do not form one line."},
		{RefusedLaunchesUnavailable, "The service can launch on no chain now."},
		{RefusedChainNotListed, "The capabilities do not list the chain of the launch."},
		{RefusedKindNotOffered, "The chain does not offer this kind of launch."},
		{RefusedPairingNotOffered, "The chain does not offer this pairing for this kind of launch."},
		{RefusedRepository,
			"The service does not deliver to that repoUrl; limits.repositoryHosts of the capabilities lists the hosts."},
		{RefusedOriginalNotFound, "There is no such job or schedule, or it belongs to another token."},
		{RefusedAmountTooLarge, "The runs together cost more than 256 bits can hold."},
	}
}
