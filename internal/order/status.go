package order

import (
	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// status returns what a requester sees of an order now. The stored status does not
// show that a quote expired: only here the clock turns quoted into expired.
func (f *Flow) status(record Record) boxoffice.Status {
	order := record.Order
	if order.Status == boxoffice.Quoted && !order.Quote.Live(f.Now().Unix()) {
		order.Status = boxoffice.Expired
	}
	status := boxoffice.Status{Status: order.Status, Order: order}
	if record.Payment != nil {
		status.Payment = paymentStatus(record.Payment, order.Quote.Payment.Network)
	}
	if order.Status == boxoffice.Paid {
		status.Status = boxoffice.AdmissionPending
	}
	if record.Admission != nil {
		status.Status = boxoffice.Admitted
		status.Admission = f.admission(*record.Admission)
	}
	return status
}

func paymentStatus(intent *payment.Intent, network string) *boxoffice.PaymentStatus {
	status := &boxoffice.PaymentStatus{
		Status:      boxoffice.PaymentStatusPending,
		Payer:       intent.Permit.From,
		Network:     network,
		Asset:       intent.Permit.Permitted.Token,
		Amount:      intent.Permit.Permitted.Amount,
		PayTo:       intent.Permit.Witness.To,
		Reason:      intent.Reason,
		SubmittedAt: intent.SubmittedAt,
	}
	switch {
	case intent.Evidence != nil: // also if a reorganisation removed the transfer: the order stays paid
		evidence := *intent.Evidence
		status.Status, status.Paid, status.Reason = boxoffice.PaymentStatusSettled, true, ""
		status.TransactionHash, status.SettledAt = &evidence.TxHash, &evidence.SettledAt
		if evidence.BlockNumber > 0 { // 0: settled by a facilitator, which names no block
			status.BlockNumber = &evidence.BlockNumber
		}
	case intent.State == payment.Failed:
		status.Status = boxoffice.PaymentStatusFailed
	}
	return status
}

var collections = map[string]string{
	work.KindJob:      "/jobs/",
	work.KindOracle:   "/oracles/",
	work.KindWorkflow: "/workflows/",
	work.KindSchedule: "/schedules/",
}

func (f *Flow) admission(saved Admission) *boxoffice.Admission {
	opened := saved.Opened
	url := f.BaseURL + collections[opened.Kind] + string(opened.ID)
	result := boxoffice.Result{Kind: opened.Kind, ID: opened.ID, URL: url}
	if opened.JobID != "" {
		result.JobURL = f.BaseURL + collections[work.KindJob] + string(opened.JobID)
	}
	return &boxoffice.Admission{Status: boxoffice.Admitted, AdmittedAt: saved.AdmittedAt, Result: result}
}
