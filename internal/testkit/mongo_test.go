package testkit_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestEachMongo_isCleanAndUsable(t *testing.T) {
	t.Parallel()
	testkit.EachMongo(t, func(t *testing.T, s *testkit.Mongo) {
		c := s.Client(t).Database(s.Database()).Collection("things")
		if n, err := c.CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
			t.Errorf("%d documents, %v", n, err)
		}
		if _, err := c.InsertOne(t.Context(), bson.D{{Key: "x", Value: 1}}); err != nil {
			t.Error(err)
		}
	})
}

func TestWithDatabase_replacesThePathAlone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"mongodb://h:1":                         {"mongodb://h:1/lastmile_test_", ""},
		"mongodb://h:1/":                        {"mongodb://h:1/lastmile_test_", ""},
		"mongodb://h:1,i:2/db?replicaSet=rs&x=": {"mongodb://h:1,i:2/lastmile_test_", "?replicaSet=rs&x="},
		// The user's own database is where the path pointed, else admin.
		"mongodb://u:p@h:1,i:2/db?replicaSet=rs&x=": {"mongodb://u:p@h:1,i:2/lastmile_test_", "?replicaSet=rs&x=&authSource=db"},
		"mongodb://u:p@h":               {"mongodb://u:p@h/lastmile_test_", "?authSource=admin"},
		"mongodb://u:p@h/?authSource=x": {"mongodb://u:p@h/lastmile_test_", "?authSource=x"},
		"mongodb+srv://h?a=b":           {"mongodb+srv://h/lastmile_test_", "?a=b"},
	} {
		got := testkit.WithDatabase(t, in)
		if !strings.HasPrefix(got, want[0]) || !strings.HasSuffix(got, want[1]) || len(got) != len(want[0])+12+len(want[1]) {
			t.Errorf("%s became %s", in, got)
		}
		if again := testkit.WithDatabase(t, in); again == got {
			t.Errorf("the same database twice: %s", got)
		}
	}
}
