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
	// answerTTL is the time for which a review by the API server is cached, and so the time for which a
	// withdrawn token or right still works for a request: the same as in kube-scheduler and internal/daemon.
	// An open stream reviews every reviewEvery, from the same cache.
	answerTTL = 10 * time.Second
	// reviewTimeout bounds one review.
	reviewTimeout = 10 * time.Second
	// maxAnswers bounds the cached reviews.
	maxAnswers = 4096
	// maxToken bounds a token, in bytes. Those of service accounts have about one thousand.
	maxToken = 16 << 10
	// strangersPerSecond and strangersBurst bound the reviews of all callers together whose token was not
	// recently valid (newPerSecond bounds each of them), and reviewsPerSecond and reviewBurst those of all
	// other callers.
	strangersPerSecond = 10
	strangersBurst     = 40
	reviewsPerSecond   = 100
	reviewBurst        = 400
	// knownTTL is the time for which a valid token is remembered.
	knownTTL = time.Hour
)

// Right is a right to objects of the API server.
type Right = authorizationv1.ResourceAttributes

// Caller is the sender of a request.
type Caller struct {
	Name string

	key    string // identifies all attributes that decide about rights
	groups []string
	uid    string
	extra  map[string]authenticationv1.ExtraValue
}

// Access authenticates callers and authorizes their requests.
type Access interface {
	// Known returns the name of the caller whose token a request has, without a review, or an empty string
	// if the token is unknown. It proves nothing: the token may have expired since.
	Known(r *http.Request) string
	// Authenticate returns the sender of a request. The error is a *Refusal.
	Authenticate(r *http.Request) (*Caller, error)
	// Authorize returns nil if the caller has all these rights. The error is a *Refusal.
	Authorize(ctx context.Context, c *Caller, rights []Right) error
	// Mode is the way callers are authenticated: "kubeconfig" or "token".
	Mode() string
}

// Refusal is a response other than 200.
type Refusal struct {
	Code      int
	Text, How string
}

func (r *Refusal) Error() string { return r.Text }

// OneUser is the access of a server that shows one user, on the user's machine, the objects that the user
// may read: its informers have the user's own rights.
type OneUser struct{ Name string }

// Known returns the user's name.
func (u OneUser) Known(*http.Request) string { return u.Name }

// Authenticate returns the user.
func (u OneUser) Authenticate(*http.Request) (*Caller, error) { return &Caller{Name: u.Name}, nil }

// Authorize returns nil: objects that the user may not read are not held.
func (u OneUser) Authorize(context.Context, *Caller, []Right) error { return nil }

// Mode returns "kubeconfig".
func (u OneUser) Mode() string { return "kubeconfig" }

// Tokens authenticates bearer tokens at the API server (TokenReview), and authorizes their owners to read
// the shown objects (SubjectAccessReview).
type Tokens struct {
	client  kubernetes.Interface
	answers *cache.LRUExpireCache
	// known are the callers whose tokens were valid: their reviews have a limit of their own, so that
	// guessed tokens do not lock them out.
	known     *cache.LRUExpireCache
	reviews   *rate.Limiter
	strangers *rate.Limiter
	peers     *peers
	asking    singleflight.Group // one concurrent review of a token or right
	clock     clock.PassiveClock
}

// NewTokens makes an access by tokens. The client needs the right to create both kinds of reviews.
// proxies are the proxies whose X-Forwarded-For is trusted.
func NewTokens(client kubernetes.Interface, c clock.PassiveClock, proxies []netip.Prefix) *Tokens {
	return &Tokens{
		client: client, peers: newPeers(proxies, c), answers: cache.NewLRUExpireCacheWithClock(maxAnswers, c), known: cache.NewLRUExpireCacheWithClock(maxAnswers, c),
		reviews: rate.NewLimiter(reviewsPerSecond, reviewBurst), strangers: rate.NewLimiter(strangersPerSecond, strangersBurst), clock: c,
	}
}

// Mode returns "token".
func (t *Tokens) Mode() string { return "token" }

// answer is the result of a review; refused is nil if it was positive.
type answer struct {
	caller  *Caller
	refused *Refusal
}

// tokenKey is the cache key of a token's review: the token itself is not kept.
type tokenKey [sha256.Size]byte

type rightKey struct {
	caller string // Caller.key
	right  Right
}

// tokenOf returns the bearer token of a request.
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

// Known returns the name of the caller whose token was valid at its last review, at most knownTTL ago.
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

// Authenticate has the API server review the token of a request.
func (t *Tokens) Authenticate(r *http.Request) (*Caller, error) {
	token, key, refused := t.tokenOf(r)
	if refused != nil {
		return nil, refused
	}
	if a, ok := t.answers.Get(key); ok {
		return a.(answer).give() //nolint:forcetypeassert // only answers are kept
	}
	// Other requests may wait for the same review: it does not end with this request.
	a, err, _ := t.asking.Do(string(key[:]), func() (any, error) { return t.reviewToken(r, key, token) })
	if err != nil {
		return nil, err
	}
	return a.(answer).give() //nolint:forcetypeassert // reviewToken gives answers
}

func (t *Tokens) reviewToken(r *http.Request, key tokenKey, token string) (answer, error) {
	limit := t.reviews
	if _, ok := t.known.Get(key); !ok {
		// The peer's limit is checked first, so that its excess takes nothing of the limit of all peers.
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

// ask takes one review from a limit.
func (t *Tokens) ask(limit *rate.Limiter) *Refusal {
	if !limit.AllowN(t.clock.Now(), 1) {
		return &Refusal{http.StatusTooManyRequests, "too many tokens and rights are being reviewed", "try again in a second"}
	}
	return nil
}

// unreachable returns the response for a failed review. The text of the error is not passed on: it may
// repeat the request.
func unreachable(what string, err error) *Refusal {
	if apierrors.IsForbidden(err) {
		return &Refusal{http.StatusServiceUnavailable, "the server may not have a " + what + " reviewed", "give its account the role nvtopo-ui"}
	}
	return &Refusal{http.StatusServiceUnavailable, "the API server does not say whether the " + what + " is valid", "try again in a moment"}
}

// Authorize has the API server review the caller's rights.
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
