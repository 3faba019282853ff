// Package crash names the moments of settlement and admission at which a process may
// die, so that a test can kill it there. Without the build tag crashpoints, At and
// AtCommit do nothing.
//
// docs/states.md says what a crash at each of them leaves behind.
package crash

// Step is a moment between two effects of a process, such as saving and sending.
type Step string

// The moments. Each is right after the effect that it names, those of the store
// right before a commit.
const (
	PaymentVerified    Step = "order: payment verified"
	PaymentSaved       Step = "order: payment saved"
	AdmissionSaved     Step = "order: admission saved"
	TransactionSigned  Step = "settler: transaction signed"
	SlotSaved          Step = "settler: slot saved"
	TransactionSent    Step = "settler: transaction broadcast"
	ReceiptSeen        Step = "settler: receipt seen"
	DecisionsSaved     Step = "settler: decisions saved"
	DecisionsAnnounced Step = "settler: decisions announced"
	ReplacementSigned  Step = "settler: replacement signed"
	ReplacementSaved   Step = "settler: replacement saved"
	ReplacementSent    Step = "settler: replacement broadcast"
	ExposureSaved      Step = "remote: exposure saved"
	FacilitatorReplied Step = "remote: facilitator replied"
	commitPrefix            = "store: about to commit: "
	CommitOrder        Step = commitPrefix + "create order"
	CommitPayment      Step = commitPrefix + "begin payment"
	CommitLease        Step = commitPrefix + "lease"
	CommitSlot         Step = commitPrefix + "open slot"
	CommitReplacement  Step = commitPrefix + "add transaction"
	CommitDecisions    Step = commitPrefix + "settle"
	CommitReopening    Step = commitPrefix + "reopen slots"
	CommitAdmission    Step = commitPrefix + "admit"
	CommitExposure     Step = commitPrefix + "expose payment"
)

// Steps are the moments of a server that settles with its own key.
var Steps = []Step{
	PaymentVerified, PaymentSaved, AdmissionSaved,
	TransactionSigned, SlotSaved, TransactionSent, ReceiptSeen, DecisionsSaved, DecisionsAnnounced,
	ReplacementSigned, ReplacementSaved, ReplacementSent,
	CommitOrder, CommitPayment, CommitLease, CommitSlot, CommitReplacement, CommitDecisions, CommitReopening,
	CommitAdmission,
}

// RemoteSteps are the moments of a server that settles through a facilitator.
var RemoteSteps = []Step{
	PaymentVerified, PaymentSaved, AdmissionSaved, ExposureSaved, FacilitatorReplied,
	DecisionsSaved, DecisionsAnnounced,
	CommitOrder, CommitPayment, CommitLease, CommitExposure, CommitDecisions, CommitAdmission,
}

// Variable is the environment variable that arms one step of a process that was
// built with the tag. Its value is the step, "#", and at which pass to die.
const Variable = "BOXOFFICE_CRASH"
