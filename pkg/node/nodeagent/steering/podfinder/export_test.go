// SPDX-License-Identifier: Apache-2.0

package podfinder

// What the tests of this package need of its inside.
const (
	ListAfter        = listAfter
	AskOnAfterMisfit = askOnAfterMisfit
)

// Unsure counts the pods that kubelet may have to be asked about.
func (f *Facts) Unsure() int { return f.unsure(nil) }
