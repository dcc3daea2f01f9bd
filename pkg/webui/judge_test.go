// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"fmt"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// judge is the API server's part in reviews.
type judge struct {
	kube    *fake.Clientset
	owners  map[string]string // token -> user
	may     func(user string, r *authorizationv1.ResourceAttributes) bool
	tokens  atomic.Int32 // reviews
	rights  atomic.Int32
	expired atomic.Bool
	down    atomic.Bool
	holding sync.RWMutex // held while tokens wait for their review
}

// holdTokens has reviews of tokens wait until they are released.
func (j *judge) holdTokens() (release func()) {
	j.holding.Lock()
	return j.holding.Unlock
}

func newJudge() *judge {
	j := &judge{kube: fake.NewClientset(), owners: map[string]string{"good": "alice", "other": "bob", "mallory": "mallory"}}
	j.may = func(user string, _ *authorizationv1.ResourceAttributes) bool { return user == "alice" }
	j.kube.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		j.tokens.Add(1)
		j.holding.RLock()
		defer j.holding.RUnlock()
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if j.down.Load() {
			return true, nil, fmt.Errorf("post %s: connection refused", review.Spec.Token)
		}
		user, ok := j.owners[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok && !j.expired.Load(), User: authenticationv1.UserInfo{Username: user, Groups: []string{"system:authenticated"}}}
		return true, review, nil
	})
	j.kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		j.rights.Add(1)
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = j.may(review.Spec.User, review.Spec.ResourceAttributes)
		return true, review, nil
	})
	return j
}

// byToken has the server ask the judge.
func (j *judge) byToken(c *Config) {
	c.Hosts, c.Access = nil, NewTokens(j.kube, c.Clock, nil)
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}
