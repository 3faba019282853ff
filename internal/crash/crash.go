// Package crash names the moments of settlement and admission at which a
// process may die, so that a test can make it die there. Without the build tag
// crashpoints a call of At or AtCommit is nothing.
//
// docs/states.md says what a death at each of them leaves behind.
package crash

// Step is a moment between two effects.
type Step string

// The moments, each right after the effect that it is called by.
const (
	PaymentVerified   Step = "order: payment verified"
	PaymentSaved      Step = "order: payment saved"
	AdmissionSaved    Step = "order: admission saved"
	TransactionSigned Step = "settler: transaction signed"
	SlotSaved         Step = "settler: slot saved"
	TransactionSent   Step = "settler: transaction broadcast"
	ReceiptSeen       Step = "settler: receipt seen"
	DecisionsSaved    Step = "settler: decisions saved"
	DecisionsTold     Step = "settler: decisions told"
	ReplacementSigned Step = "settler: replacement signed"
	ReplacementSaved  Step = "settler: replacement saved"
	ReplacementSent   Step = "settler: replacement broadcast"
	ExposureSaved     Step = "remote: exposure saved"
	FacilitatorHeard  Step = "remote: facilitator answered"
	commitPrefix           = "store: about to commit: "
	CommitOrder       Step = commitPrefix + "create order"
	CommitPayment     Step = commitPrefix + "begin payment"
	CommitLease       Step = commitPrefix + "lease"
	CommitSlot        Step = commitPrefix + "open slot"
	CommitReplacement Step = commitPrefix + "add transaction"
	CommitDecisions   Step = commitPrefix + "settle"
	CommitReopening   Step = commitPrefix + "reopen slots"
	CommitAdmission   Step = commitPrefix + "admit"
	CommitExposure    Step = commitPrefix + "expose payment"
)

// Steps is every moment of a server that settles by its own key.
var Steps = []Step{
	PaymentVerified, PaymentSaved, AdmissionSaved,
	TransactionSigned, SlotSaved, TransactionSent, ReceiptSeen, DecisionsSaved, DecisionsTold,
	ReplacementSigned, ReplacementSaved, ReplacementSent,
	CommitOrder, CommitPayment, CommitLease, CommitSlot, CommitReplacement, CommitDecisions, CommitReopening, CommitAdmission,
}

// RemoteSteps is every moment of a server that settles through a facilitator.
var RemoteSteps = []Step{
	PaymentVerified, PaymentSaved, AdmissionSaved, ExposureSaved, FacilitatorHeard, DecisionsSaved, DecisionsTold,
	CommitOrder, CommitPayment, CommitLease, CommitExposure, CommitDecisions, CommitAdmission,
}

// Variable is the environment variable that arms one step of a process that was
// built with the tag: a step, "#" and at which of its calls to die.
const Variable = "BOXOFFICE_CRASH"
