package work

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"boxoffice"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// panelAdvance is what follows from the states of the members of a panel.
type panelAdvance struct {
	replacements  int                    // members to be added
	answer        *boxoffice.PanelAnswer // when the whole panel has answered
	blockedReason string                 // when it cannot answer any more
}

// maxReplacements is how many members of a panel of a size may be replaced.
func maxReplacements(size int) int { return max(2, size/2) }

// advancePanel decides what comes next for an oracle with the given members.
func advancePanel(size int, options []string, members []Node) panelAdvance {
	answered, underWay := 0, 0
	for _, member := range members {
		switch member.State {
		case boxoffice.NodeDone:
			answered++
		case boxoffice.NodeQueued, boxoffice.NodeRunning:
			underWay++
		}
	}
	if answered >= size {
		votes := Tally(options, members)[0]
		return panelAdvance{answer: &boxoffice.PanelAnswer{Choice: votes.Choice, Votes: votes.Votes, Of: size}}
	}
	missing := size - answered - underWay
	next := panelAdvance{replacements: max(0, min(missing, size+maxReplacements(size)-len(members)))}
	if underWay+next.replacements == 0 {
		next.blockedReason = fmt.Sprintf(
			"the panel could not be reached: %d of %d members answered, and no more than %d may be replaced",
			answered, size, maxReplacements(size))
	}
	return next
}

// Tally counts the choices of the members that have answered: most votes first,
// and in alphabetical order where the votes are equal. For a question without
// options, choices that differ only in case, white space or Unicode form count
// as one. That choice is shown as the member with the lowest number wrote it.
func Tally(options []string, members []Node) []boxoffice.Votes {
	var tally []boxoffice.Votes
	index := map[string]int{} // of a choice in tally
	for _, member := range members {
		if member.State != boxoffice.NodeDone {
			continue
		}
		shown, key := member.Choice, member.Choice
		if len(options) == 0 {
			shown, key = strings.TrimSpace(shown), normalised(key)
		}
		i, found := index[key]
		if !found {
			i, index[key] = len(tally), len(tally)
			tally = append(tally, boxoffice.Votes{Choice: shown})
		}
		tally[i].Votes++
	}
	slices.SortFunc(tally, func(a, b boxoffice.Votes) int {
		return cmp.Or(cmp.Compare(b.Votes, a.Votes), cmp.Compare(a.Choice, b.Choice))
	})
	return tally
}

// normalised returns the same text for choices that count as one.
func normalised(choice string) string {
	return strings.Join(strings.Fields(norm.NFC.String(cases.Fold().String(norm.NFC.String(choice)))), " ")
}
