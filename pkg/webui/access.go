// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// answerTTL is how long an answer of the API server is kept, and so how long a withdrawn token
	// or right still works for a request: the same time as in kube-scheduler and internal/daemon. A stream
	// that is open asks every reviewEvery, and gets such an answer.
	answerTTL = 10 * time.Second
	// reviewTimeout bounds one review.
	reviewTimeout = 10 * time.Second
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 4096
	// maxToken bounds a token, in bytes. Those of service accounts have about one thousand.
	maxToken = 16 << 10
	// strangersPerSecond and strangersBurst bound what all those together can have the API server do
	// whose token was not valid a while ago (newPerSecond bounds each of them), and reviewsPerSecond
	// and reviewBurst what all others can.
	strangersPerSecond = 10
	strangersBurst     = 40
	reviewsPerSecond   = 100
	reviewBurst        = 400
	// knownTTL is for how long it is remembered that a token was valid.
	knownTTL = time.Hour
)

// Right is a right to objects of the API server.
type Right = authorizationv1.ResourceAttributes

// Caller is who asks.
type Caller struct {
	Name string

	key    string // of everything that decides about rights
	groups []string
	uid    string
	extra  map[string]authenticationv1.ExtraValue
}

// Access says who may see what.
type Access interface {
	// Known is the name of the caller whose token a request has, as far as it is known without
	// asking anybody, and empty if it is not. It proves nothing: the token may have expired since.
	Known(r *http.Request) string
	// Authenticate says who sent a request. The error is a *Refusal.
	Authenticate(r *http.Request) (*Caller, error)
	// Authorize is nil if the caller has all these rights. The error is a *Refusal.
	Authorize(ctx context.Context, c *Caller, rights []Right) error
	// Mode is how callers are told apart: "kubeconfig" or "token".
	Mode() string
}

// Refusal is an answer other than 200.
type Refusal struct {
	Code      int
	Text, How string
}

func (r *Refusal) Error() string { return r.Text }

// OneUser is the access of a server that shows one user, on the user's machine, what the user may
// read: its informers have the user's own rights.
type OneUser struct{ Name string }

// Known is the user.
func (u OneUser) Known(*http.Request) string { return u.Name }

// Authenticate gives the user.
func (u OneUser) Authenticate(*http.Request) (*Caller, error) { return &Caller{Name: u.Name}, nil }

// Authorize is nil: what the user may not read is not held.
func (u OneUser) Authorize(context.Context, *Caller, []Right) error { return nil }

// Mode is "kubeconfig".
func (u OneUser) Mode() string { return "kubeconfig" }

// Tokens asks the API server who has a bearer token (TokenReview), and whether its owner may read
// the objects that are shown (SubjectAccessReview).
type Tokens struct {
	client  kubernetes.Interface
	answers *cache.LRUExpireCache
	// known are the callers whose tokens were valid: these have reviews of their own, so that those
	// who guess keep nobody out.
	known     *cache.LRUExpireCache
	reviews   *rate.Limiter
	strangers *rate.Limiter
	peers     *peers
	asking    singleflight.Group // one review of a token or right at a time
	clock     clock.PassiveClock
}

// NewTokens makes an access by tokens. The client needs the right to create both kinds of reviews.
// Proxies are those whose X-Forwarded-For is believed.
func NewTokens(client kubernetes.Interface, c clock.PassiveClock, proxies []netip.Prefix) *Tokens {
	return &Tokens{
		client: client, peers: newPeers(proxies, c), answers: cache.NewLRUExpireCacheWithClock(maxAnswers, c), known: cache.NewLRUExpireCacheWithClock(maxAnswers, c),
		reviews: rate.NewLimiter(reviewsPerSecond, reviewBurst), strangers: rate.NewLimiter(strangersPerSecond, strangersBurst), clock: c,
	}
}

// Mode is "token".
func (t *Tokens) Mode() string { return "token" }

// answer is what the API server said; refused is nil if it said yes.
type answer struct {
	caller  *Caller
	refused *Refusal
}

// tokenKey is how an answer about a token is found: the token itself is not kept.
type tokenKey [sha256.Size]byte

type rightKey struct {
	caller string // its key
	right  Right
}

// tokenOf is the bearer token of a request.
func (t *Tokens) tokenOf(r *http.Request) (token string, key tokenKey, refused *Refusal) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", tokenKey{}, &Refusal{http.StatusUnauthorized, "the request has no token", "send a bearer token, such as one of 'kubectl create token'"}
	case len(token) > maxToken:
		return "", tokenKey{}, &Refusal{http.StatusUnauthorized, fmt.Sprintf("the token has more than %d bytes", maxToken), "send a token of this cluster"}
	case expired(token, t.clock.Now()):
		return "", tokenKey{}, &Refusal{http.StatusUnauthorized, "the token has expired", "send a new token of this cluster"}
	}
	return token, tokenKey(sha256.Sum256([]byte(token))), nil
}

// Known is the name of the caller whose token was valid a while ago.
func (t *Tokens) Known(r *http.Request) string {
	_, key, refused := t.tokenOf(r)
	if refused != nil {
		return ""
	}
	if name, ok := t.known.Get(key); ok {
		return name.(string) //nolint:forcetypeassert // only names are kept
	}
	return ""
}

// Authenticate asks the API server whose token a request has.
func (t *Tokens) Authenticate(r *http.Request) (*Caller, error) {
	token, key, refused := t.tokenOf(r)
	if refused != nil {
		return nil, refused
	}
	if a, ok := t.answers.Get(key); ok {
		return a.(answer).give() //nolint:forcetypeassert // only answers are kept
	}
	// Others may wait for the same answer: it does not end with this request.
	a, err, _ := t.asking.Do(string(key[:]), func() (any, error) { return t.reviewToken(r, key, token) })
	if err != nil {
		return nil, err
	}
	return a.(answer).give() //nolint:forcetypeassert // reviewToken gives answers
}

func (t *Tokens) reviewToken(r *http.Request, key tokenKey, token string) (answer, error) {
	limit := t.reviews
	if _, ok := t.known.Get(key); !ok {
		// What the peer may not have reviewed takes nothing of what all have together.
		if refused := t.peers.allow(r); refused != nil {
			return answer{}, refused
		}
		limit = t.strangers
	}
	if refused := t.ask(limit); refused != nil {
		return answer{}, refused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	done, err := t.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return answer{}, unreachable("token", err)
	}
	a := answer{}
	if u := &done.Status.User; done.Status.Authenticated && u.Username != "" {
		text, err := json.Marshal(u) // in the order of keys
		if err != nil {
			return answer{}, unreachable("token", err)
		}
		a.caller = &Caller{Name: u.Username, key: string(text), uid: u.UID, groups: u.Groups, extra: u.Extra}
		t.known.Add(key, u.Username, knownTTL)
	} else {
		a.refused = &Refusal{http.StatusUnauthorized, "the token is not valid, or has expired", "send a new token of this cluster"}
	}
	t.answers.Add(key, a, answerTTL)
	return a, nil
}

func (a answer) give() (*Caller, error) {
	if a.refused != nil {
		return nil, a.refused
	}
	return a.caller, nil
}

// ask takes one of the reviews that are allowed now.
func (t *Tokens) ask(limit *rate.Limiter) *Refusal {
	if !limit.AllowN(t.clock.Now(), 1) {
		return &Refusal{http.StatusTooManyRequests, "too many tokens and rights are being reviewed", "try again in a second"}
	}
	return nil
}

// unreachable is the answer when nobody can say. The text of the error is not passed on: it may
// repeat the request.
func unreachable(what string, err error) *Refusal {
	if apierrors.IsForbidden(err) {
		return &Refusal{http.StatusServiceUnavailable, "the server may not have a " + what + " reviewed", "give its account the role nvtopo-ui"}
	}
	return &Refusal{http.StatusServiceUnavailable, "the API server does not say whether the " + what + " is valid", "try again in a moment"}
}

// Authorize asks the API server whether the caller has the rights.
func (t *Tokens) Authorize(ctx context.Context, c *Caller, rights []Right) error {
	for _, r := range rights {
		key := rightKey{c.key, r}
		if a, ok := t.answers.Get(key); ok {
			if a.(answer).refused != nil { //nolint:forcetypeassert // only answers are kept
				return a.(answer).refused //nolint:forcetypeassert // only answers are kept
			}
			continue
		}
		a, err, _ := t.asking.Do(fmt.Sprint(key), func() (any, error) { return t.reviewRight(context.WithoutCancel(ctx), c, r) })
		if err != nil {
			return err
		}
		t.answers.Add(key, a, answerTTL)
		if a.(answer).refused != nil { //nolint:forcetypeassert // reviewRight gives answers
			return a.(answer).refused //nolint:forcetypeassert // reviewRight gives answers
		}
	}
	return nil
}

func (t *Tokens) reviewRight(ctx context.Context, c *Caller, r Right) (answer, error) {
	if refused := t.ask(t.reviews); refused != nil {
		return answer{}, refused
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &r, User: c.Name, UID: c.uid, Groups: c.groups}}
	for key, values := range c.extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	done, err := t.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return answer{}, unreachable("right", err)
	}
	if done.Status.Allowed && !done.Status.Denied {
		return answer{caller: c}, nil
	}
	what := r.Resource
	if r.Group != "" {
		what += "." + r.Group
	}
	return answer{refused: &Refusal{
		http.StatusForbidden, fmt.Sprintf("%s may not %s %s", c.Name, r.Verb, what), "ask who runs the cluster for the ClusterRole nvtopo-ui-viewer",
	}}, nil
}
