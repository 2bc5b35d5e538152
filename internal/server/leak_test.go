package server_test

// planted is a card number that nothing may ever show.
const planted = "4242424242424242"
