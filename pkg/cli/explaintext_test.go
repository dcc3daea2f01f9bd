// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/explain"
)

func TestExplanationTextIgnoredKeys(t *testing.T) {
	const said = "Annotation nvtopo.dev/min-lnk is not known; nearest is nvtopo.dev/min-link; the pod is scheduled without it"
	e := &explain.Explanation{Kind: "Pod", Namespace: "team", Name: "p", State: explain.Bound, IgnoredKeys: said}
	if got := string(explanationText(e)); !strings.Contains(got, "\nIgnored: "+said+"\n") {
		t.Errorf("got\n%s", got)
	}
	e.IgnoredKeys = ""
	if got := string(explanationText(e)); strings.Contains(got, "Ignored") {
		t.Errorf("without any got\n%s", got)
	}
}
