// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	clienttesting "k8s.io/client-go/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestForeignNames: no text on a pod names a gang or a pod of another namespace.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	for node, namespace := range map[string]string{"node-0-0": "others", "node-0-1": "third", "node-0-2": "default"} {
		r.place(r.create(gpuPod("low-"+node, 8).Namespace(namespace).Node(node).Obj()))
	}
	gang := r.gangOf("secret", 3, 8, 10)
	r.known(gang[0])
	if got, want := r.failing(gang[0]), "gang default/secret: waits for default/low-node-0-2 and 2 pods of other namespaces to end, evicted for this gang"; !strings.Contains(got, want) {
		t.Errorf("the gang says %q, want %q", got, want)
	}
	testkit.Soon(t, "the victims are told", func() bool { return len(r.events.of("Preempted")) == 3 })
	want := []string{
		"default/low-node-0-2: Preempted by gang default/secret on node node-0-2 (default/secret-0)",
		"others/low-node-0-0: Preempted by a gang of another namespace on node node-0-0",
		"third/low-node-0-1: Preempted by a gang of another namespace on node node-0-1",
	}
	if diff := cmp.Diff(want, r.events.of("Preempted")); diff != "" {
		t.Errorf("events of the victims (-want,+got)\n%s", diff)
	}
	want = []string{"default/secret-0: gang default/secret evicts default/low-node-0-2 and 2 pods of other namespaces"}
	if diff := cmp.Diff(want, r.events.of("GangPreempting")); diff != "" {
		t.Errorf("events of the gang (-want,+got)\n%s", diff)
	}
	written := map[string][]string{}
	for _, action := range r.client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && action.GetSubresource() == "status" {
			written[action.GetNamespace()] = append(written[action.GetNamespace()], string(patch.GetPatch()))
		}
	}
	for _, namespace := range []string{"others", "third"} {
		if got := written[namespace]; len(got) != 1 || !strings.Contains(got[0], "preempting to accommodate a gang of another namespace, which has a higher priority") {
			t.Errorf("conditions of the victim in %s: %q", namespace, got)
		}
	}
	for namespace, texts := range written {
		if namespace != "default" && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "secret") }) {
			t.Errorf("on pods of %s is written %q", namespace, texts)
		}
	}
}

// TestForeignYield: a gang whose places are taken does not see the name of the gang that took them, if
// that is of another namespace, nor the other way round.
func TestForeignYield(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 2)
	low := r.gangOf("low", 2, 8, 0)
	r.known(low[0])
	first := r.cycle(low[0])
	if !first.status.IsWait() {
		t.Fatalf("the gang has no places: %v", first.status)
	}
	high := r.gangOf("high", 2, 8, 10, inNamespace("others"))
	r.known(high[0])
	if got, want := r.failing(high[0]), "takes the places that were held for a gang of another namespace"; !strings.Contains(got, want) {
		t.Errorf("the gang of higher priority says %q, want %q", got, want)
	}
	if got, want := r.fw.WaitOnPermit(t.Context(), low[0]).Message(), "its places are taken by a gang of another namespace, which has a higher priority"; !strings.Contains(got, want) {
		t.Errorf("the other one says %q, want %q", got, want)
	}
	r.fw.RunReservePluginsUnreserve(t.Context(), first.state, low[0], first.node)
}
