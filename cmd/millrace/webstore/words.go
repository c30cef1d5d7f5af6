package webstore

// The words of which names are made. Their lengths keep the names, and so the
// items, as long as the measured ones.

var departments = []string{"Accessories", "Bikes", "Clothing", "Components"}

// articles have 5 to 11 letters, so that a category's name has 14 to 30.
var articles = []string{
	"Lights", "Pumps", "Helmets", "Locks & Keys", "Bottles", "Panniers", "Fenders", "Cleaners", "Racks", "Tires",
	"Touring", "Mountain", "Road Bikes", "Gravel", "Folding", "Cargo Bikes", "Tandems", "Juniors", "Recumbents", "Trikes",
	"Gloves", "Jerseys", "Shorts", "Tights", "Vests", "Socks", "Caps & Hats", "Jackets", "Shoes", "Rainwear",
	"Brakes", "Chains", "Cranksets", "Derailleurs", "Forks", "Handlebars", "Headsets", "Pedals", "Saddles", "Wheels",
}

var models = []string{
	"Touring", "Mountain", "Road", "Sport", "Classic", "Racing", "Trail", "City", "Alpine", "Coast", "Summit", "Prairie",
}

var colors = []string{"Red", "Blue", "Black", "Silver", "Yellow", "White", "Green", "Orange"}

var sizes = []string{"38", "40", "42", "44", "46", "48", "50", "52", "54", "58", "60", "62", "S", "M", "L", "XL"}

var firstNames = []string{
	"Dalton", "Maria", "José", "Alice", "Frank", "Chloe", "Ethan", "Grace", "Hamza", "Ines", "Jonas", "Keiko", "Liam",
	"Marta", "Noah", "Olga", "Pedro", "Quinn", "Rosa", "Samir", "Tessa", "Umar", "Vera", "Wei", "Xenia", "Yusuf", "Zoe",
	"François", "Gabriella", "Katherine", "Sebastian", "Alexandra",
}

var lastNames = []string{
	"Perez", "Smith", "Muñoz", "Nguyen", "Okafor", "Patel", "Rossi", "Schmidt", "Tanaka", "Usman", "Vargas", "Walker",
	"Xu", "Young", "Zhang", "Alvarez", "Bennett", "Coleman", "Diaz", "Edwards", "Foster", "Garcia", "Henderson",
	"Jenkins", "Kowalski", "Lindqvist", "Martinez", "Novak", "Richardson", "Washington",
}

var streets = []string{
	"San Jose", "Maple Street", "Oak Grove Road", "Riverside Drive", "Hill Crest", "Lakeview Avenue", "Elm Court",
	"Station Road", "Mill Lane", "Orchard Way", "Willow Pass", "Sunset Circle", "North Ridge", "Harbor View",
}

// place is where a customer lives.
type place struct{ city, state, country, zip string }

// States are padded to three characters, as in the measured store.
var places = []place{
	{"Haney", "BC ", "CA", "V2W 1W2"},
	{"Seattle", "WA ", "US", "98104"},
	{"Portland", "OR ", "US", "97205"},
	{"Burbank", "CA ", "US", "91502"},
	{"Sydney", "NSW", "AU", "2000"},
	{"Geelong", "VIC", "AU", "3220"},
	{"London", "ENG", "GB", "SW8 1XD"},
	{"Oxford", "ENG", "GB", "OX1"},
	{"Berlin", "BB ", "DE", "14111"},
	{"Hamburg", "HH ", "DE", "20354"},
	{"Paris", "75 ", "FR", "75002"},
	{"Lille", "59 ", "FR", "59000"},
}
