// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

func TestPodEffects(t *testing.T) {
	type change func(*v1.Pod)
	on := func(node string) change { return func(p *v1.Pod) { p.Spec.NodeName = node } }
	nominated := func(node string) change { return func(p *v1.Pod) { p.Status.NominatedNodeName = node } }
	uid := func(u types.UID) change { return func(p *v1.Pod) { p.UID = u } }
	finished := func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }
	deleting := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	choice := func(text string) change {
		return func(p *v1.Pod) { p.Annotations = map[string]string{allocation.Key: text} }
	}
	pod := func(changes ...change) *v1.Pod {
		p := schedtest.Pod("p").UID("u").Obj()
		for _, c := range changes {
			c(p)
		}
		return p
	}
	gone := func(u types.UID) []effect {
		return []effect{{kind: stopRetrying, uid: u}, {kind: stopWaiting, uid: u}, {kind: isGone, uid: u}}
	}
	bound := func(p *v1.Pod) []effect {
		return []effect{{kind: stopRetrying, uid: p.UID}, {kind: stopWaiting, uid: p.UID}, {kind: isThere, uid: p.UID}, {kind: isBound, pod: p}}
	}
	there := []effect{{kind: isThere, uid: "u"}}
	look := func(nodes ...string) (out []effect) {
		for _, n := range nodes {
			out = append(out, effect{kind: lookAgain, node: n})
		}
		return out
	}
	wake, room := []effect{{kind: wakeOthers}}, []effect{{kind: leavesRoom}}
	join := func(lists ...[]effect) (out []effect) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	onA := pod(on("a"))
	corrected := pod(on("a"), choice("other"))
	ready := pod(on("a"), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
	resized := pod(on("a"), func(p *v1.Pod) { p.Generation++ })
	for name, tc := range map[string]struct {
		before, after *v1.Pod
		want          []effect
	}{
		"a new pod is there":                                     {after: pod(), want: there},
		"a bound pod settles its reservations":                   {before: pod(), after: onA, want: join(bound(onA), look("a"))},
		"a bound pod frees the node it was nominated for":        {before: pod(nominated("b")), after: onA, want: join(bound(onA), look("b", "a"), room)},
		"a pod that is bound where it was nominated leaves none": {before: pod(nominated("a")), after: onA, want: join(bound(onA), look("a"))},
		"nor when the nomination goes later":                     {before: pod(on("a"), nominated("a")), after: onA, want: join(bound(onA), look("a"))},
		"a nominated pod is looked at where it is to go":         {before: pod(), after: pod(nominated("b")), want: join(there, look("b"))},
		"a pod that has finished is gone":                        {before: onA, after: pod(on("a"), finished), want: join(gone("u"), look("a"), room)},
		"a pod that is being deleted before it is bound":         {before: pod(), after: pod(deleting), want: join([]effect{{kind: stopWaiting, uid: "u"}}, there)},
		"a deleted pod is gone":                                  {before: onA, want: join(gone("u"), look("a"), room)},
		"a pod made anew ends the one before":                    {before: onA, after: pod(uid("v")), want: join(gone("u"), []effect{{kind: isThere, uid: "v"}}, look("a"), room)},
		"a nomination that is taken back leaves room":            {before: pod(nominated("b")), after: pod(), want: join(there, look("b"), room)},
		"a pod that reports its state leaves none":               {before: onA, after: ready, want: join(bound(ready), look("a"))},
		"a pod that is resized may leave room":                   {before: onA, after: resized, want: join(bound(resized), look("a"), room)},
		"a choice written anew on a bound pod may free devices":  {before: pod(on("a"), choice("one")), after: corrected, want: join(bound(corrected), look("a"), wake)},
		"a choice written before the pod is bound frees nothing": {before: pod(), after: corrected, want: join(bound(corrected), look("a"))},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, podEffects(tc.before, tc.after), cmp.AllowUnexported(effect{})); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
		})
	}
}
