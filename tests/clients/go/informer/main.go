// Informer exercises client-go: typed clients that speak protobuf, informers, discovery, subresources, server-side
// apply and leader election.
package main

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"hanse.test/clients/check"
)

// world is what every check needs: a client, and a namespace of this run.
type world struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	requests  *requestLog
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", check.Kubeconfig())
	if err != nil {
		panic(err)
	}
	// The client may not wait for itself.
	config.QPS = -1
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	requests := &requestLog{}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return &recorder{inner: inner, log: requests} })
	w := &world{
		config:    config,
		client:    kubernetes.NewForConfigOrDie(config),
		namespace: check.Unique("clients-informer"),
		requests:  requests,
	}

	suite := &check.Suite{}
	suite.Run("a namespace is made", w.createNamespace)
	w.checkKinds(suite)
	w.checkChanges(suite)
	w.checkWatches(suite)
	w.checkInformers(suite)
	w.checkDiscovery(suite)
	w.checkSubresources(suite)
	w.checkPods(suite)
	w.checkApply(suite)
	w.checkElection(suite)
	suite.Run("the namespace goes with all that is in it", w.deleteNamespace)
	suite.Exit()
}

func (w *world) createNamespace(t *check.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	created, err := w.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	t.Must(err, "create the namespace")
	t.Want(created.Status.Phase == corev1.NamespaceActive, "phase Active, not %q", created.Status.Phase)
	t.Want(created.Labels["kubernetes.io/metadata.name"] == w.namespace, "the label with its name")
	// Pods are not admitted before their service account is there, and a controller may be quicker to make it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = w.client.CoreV1().ServiceAccounts(w.namespace).Create(t.Context(), account, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Must(err, "create the service account")
	}
}

func (w *world) deleteNamespace(t *check.T) {
	// No kubelet will ever say that a bound pod has stopped.
	pods := w.client.CoreV1().Pods(w.namespace)
	t.Must(pods.DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}), "delete the pods")
	namespaces := w.client.CoreV1().Namespaces()
	t.Must(namespaces.Delete(t.Context(), w.namespace, metav1.DeleteOptions{}), "delete the namespace")
	t.Eventually("the namespace", func() error {
		found, err := namespaces.Get(t.Context(), w.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return errorf("is still there: %v", found.Status)
	})
}

// requestLog remembers what the clients asked for.
type requestLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *requestLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// matching counts the requests whose method, path and query hold all of these parts.
func (l *requestLog) matching(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
line:
	for _, line := range l.lines {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue line
			}
		}
		count++
	}
	return count
}

type recorder struct {
	inner http.RoundTripper
	log   *requestLog
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.inner.RoundTrip(request)
	answer := ""
	if err == nil {
		answer = response.Header.Get("Content-Type")
	}
	r.log.add(request.Method + " " + request.URL.String() + " " + request.Header.Get("Content-Type") + " -> " + answer)
	return response, err
}

// background runs until the check has ended.
func background(t *check.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func init() {
	// Neither the client's log nor the server's warnings are what is checked here.
	klog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
}
